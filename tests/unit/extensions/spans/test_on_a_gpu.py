"""The loss on a CUDA device without values: nothing mixes devices, and the host never waits."""

import torch
from fairseq.criterions import CRITERION_REGISTRY

from tests.gpu_losses import LABELS, check_step, task_of

WINDOWS = {name: torch.tensor([3, 2, 4, 3]) for name in ("passage", "passage_length", "start", "end")}


def test_a_fine_tuning_step_stays_on_the_device_and_never_waits():
    """Its windows are never packed."""
    columns = {"columns": {**WINDOWS, "has_answer": LABELS.clamp(max=1)}}
    task = task_of("question_answering")
    check_step(CRITERION_REGISTRY["squad2"], task, ("span", {}), columns, packed=False, max_answer_length=4)
