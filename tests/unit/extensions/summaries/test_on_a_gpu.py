"""The loss on a CUDA device without values: nothing mixes devices, and the host never waits."""

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.summaries.layout import by_document, packed_layout, padded_layout
from tests.gpu_losses import LABELS, LENGTHS, check_step, task_of


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_fine_tuning_step_stays_on_the_device_and_never_waits(packed):
    rows, places = torch.tensor([0, 0, 1, 2, 3]).numpy(), torch.tensor([0, 5, 0, 0, 0]).numpy()
    layout = (
        packed_layout(rows, places, lengths=torch.tensor(LENGTHS).numpy(), num_sequences=4)
        if packed
        else padded_layout(rows, places, num_rows=4)
    )
    arrays = {**layout, **by_document(torch.tensor([3, 2]).numpy()), "labels": LABELS.new_ones(5).numpy()}
    sample = {
        "sentences": {
            name: value if isinstance(value, int) else torch.from_numpy(value) for name, value in arrays.items()
        }
    }
    head, options = ("sentence", {"num_layers": 1}), {"num_sentences": 3, "length_share": 0.0}
    task = task_of("summary")
    check_step(CRITERION_REGISTRY["roberta_summarization"], task, head, sample, packed=packed, **options)
