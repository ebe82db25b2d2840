"""The loss on a CUDA device without values: nothing mixes devices, and the host never waits."""

import pytest
import torch

from tests.gpu_losses import LABELS, check_step, of_sequences

WEIGHTS = [1.0, 2.0, 3.0]
KINDS = {
    "labels": lambda: of_sequences("classification", weights=WEIGHTS, label=LABELS),
    "several labels": lambda: of_sequences("multi_label", weights=WEIGHTS, labels=torch.ones(4, 3, dtype=torch.int8)),
    "numbers": lambda: of_sequences("regression", num_outputs=1, label=LABELS.double()),
    "pairs": lambda: of_sequences("pair_ranking", num_outputs=1, offsets=(0, 2, 4), answer=LABELS[:2]),
}


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fine_tuning_step_stays_on_the_device_and_never_waits(kind, packed):
    check_step(*KINDS[kind](), packed=packed)
