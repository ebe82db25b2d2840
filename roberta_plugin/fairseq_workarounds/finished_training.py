"""Fault 8: a finished training that trains on when it is started again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils

from roberta_plugin.fairseq_workarounds.training_loop import programs, wrap

logger = logging.getLogger(__name__)


def why_finished(cfg: Any, *, updates: int, hours: float) -> str | None:
    """Why a checkpoint of so many updates and hours of training is the last one; None if it is not."""
    max_update, stop_hours = cfg.optimization.max_update, cfg.optimization.stop_time_hours
    if 0 < max_update <= updates:
        return f"the checkpoint has {updates:,} updates, and --max-update is {max_update:,}"
    if updates and 0 < stop_hours < hours:
        return f"the checkpoint has {hours:.3g} hours of training, and --stop-time-hours is {stop_hours:g}"
    return None


def train(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """An epoch of fairseq's, unless there is nothing left to train; see fault 8."""
    # The time of this run does not count, in which ranks may differ; fairseq looks at it after each update.
    hours = trainer._previous_training_time / 3600
    reason = why_finished(cfg, updates=trainer.get_num_updates(), hours=hours)
    if reason is None:
        return fairseqs(cfg, trainer, task, epoch_itr)
    logger.info(f"This training is finished: {reason}. Nothing is done; a larger value would go on.")
    return [None], True


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's, which says so where --max-epoch leaves nothing to do."""
    extra_state, epoch_itr = fairseqs(cfg, trainer, **options)
    max_epoch, epochs = trainer.cfg.optimization.max_epoch, epoch_itr.next_epoch_idx - 1
    if 0 < max_epoch <= epochs:
        logger.info(
            f"This training is finished: the checkpoint has {epochs:,} epochs, and --max-epoch is {max_epoch:,}. "
            "Nothing is done; a larger value would go on."
        )
    return extra_state, epoch_itr


def install() -> None:
    """Look at the limits before the first update, too."""
    wrap(checkpoint_utils, "load_checkpoint", load_checkpoint)
    for program in programs():
        wrap(program, "train", train)
