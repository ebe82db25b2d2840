"""The loss on a CUDA device without values: nothing mixes devices, and the host never waits."""

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from tests.gpu_losses import LENGTHS, check_step, task_of


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_fine_tuning_step_stays_on_the_device_and_never_waits(packed):
    width = sum(LENGTHS) if packed else max(LENGTHS)
    sample = {"token_labels": torch.randint(0, 3, (1 if packed else 4, width)), "num_labels": 40}
    head = "token", {"num_classes": 3}
    check_step(CRITERION_REGISTRY["roberta_tagging"], task_of("tagging"), head, sample, packed=packed)
