"""A fine-tuning criterion reads the batches and outputs of one task: the task of its name."""

from __future__ import annotations

from typing import Any


def check_task(task: Any, criterion: str) -> None:
    """Refuse any task but the one that has the criterion's name.

    Raises:
        ValueError: naming both.
    """
    name = getattr(task, "name", None) or getattr(task.cfg, "_name", None) or type(task).__name__
    if name != criterion:
        raise ValueError(
            f"--criterion {criterion} goes with --task {criterion} and a folder of `roberta prepare`, not with --task "
            f"{name}."
        )
