"""Which task a fine-tuning criterion goes with: the one of its name, whose batches and outputs it reads."""

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
