"""Fault 25: a mistyped option or data folder ends in a page of log and a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.fairseq_workarounds.training_loop import programs, wrap


def call_main(fairseqs: Callable[..., None], cfg: Any, main: Any, **options: Any) -> None:
    """fairseq's start of a training, after our classes have checked its options and data."""
    try:
        model, task = ARCH_MODEL_REGISTRY.get(_name(cfg.model)), TASK_REGISTRY.get(_name(cfg.task))
        if hasattr(task, "check_start"):  # one of ours
            task.check_start(cfg)
            if hasattr(model, "check_options"):
                model.check_options(cfg.model)
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")  # sweeps find it in the log by the name
    fairseqs(cfg, main, **options)


def _name(section: Any) -> Any:
    return getattr(section, "_name", None)


def install() -> None:
    """Check before fairseq-train starts its ranks."""
    if programs():
        wrap(distributed_utils, "call_main", call_main)
