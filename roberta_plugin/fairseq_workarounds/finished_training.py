"""Fault 8: a finished training trains on when it is started again.

fairseq counts validations for --patience in attributes of a function, which its checkpoints do not hold; ours do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds import update_end
from roberta_plugin.fairseq_workarounds.training_loop import programs, wrap

logger = logging.getLogger(__name__)

PATIENCE = "patience"  # key in a checkpoint's extra_state


def why_finished(cfg: Any, *, updates: int, hours: float) -> str | None:
    """The reason why a training with this number of updates and hours is finished; None if it is not."""
    max_update, stop_hours = cfg.optimization.max_update, cfg.optimization.stop_time_hours
    if 0 < max_update <= updates:
        return f"the checkpoint has {updates:,} updates, and --max-update is {max_update:,}"
    if updates and 0 < stop_hours < hours:
        return f"the checkpoint has {hours:.3g} hours of training, and --stop-time-hours is {stop_hours:g}"
    patience, validations = cfg.checkpoint.patience, patience_state(cfg.checkpoint).get("num_runs", 0)
    if 0 < patience <= validations:
        return f"early stop: no improvement in the last {validations:,} validations, and --patience is {patience:,}"
    return None


def patience_state(checkpoint: Any) -> dict[str, Any]:
    """State of fairseq's `should_stop_early`, with the name of its metric; empty before the first validation."""
    for program in programs():
        if hasattr(program.should_stop_early, "best"):
            remembered = program.should_stop_early
            return {"best": remembered.best, "num_runs": remembered.num_runs, **_metric(checkpoint)}
    return {}


def restore_patience(checkpoint: Any, state: dict[str, Any]) -> None:
    """Set the state of fairseq's `should_stop_early`; reset it if `state` belongs to another metric."""
    is_of_metric = bool(state) and state.items() >= _metric(checkpoint).items()
    for program in programs():
        for name in ("best", "num_runs"):
            if is_of_metric:
                setattr(program.should_stop_early, name, state[name])
            elif hasattr(program.should_stop_early, name):
                delattr(program.should_stop_early, name)


def _metric(checkpoint: Any) -> dict[str, Any]:
    return {
        "metric": checkpoint.best_checkpoint_metric,
        "is_maximized": bool(checkpoint.maximize_best_checkpoint_metric),
    }


def save_trainer(fairseqs: Callable[..., Any], trainer: Any, filename: str, extra_state: dict[str, Any]) -> Any:
    """fairseq's `Trainer.save_checkpoint`, with the state of --patience."""
    state = patience_state(trainer.cfg.checkpoint)
    return fairseqs(trainer, filename, {**extra_state, PATIENCE: state} if state else extra_state)


def load_trainer(
    fairseqs: Callable[..., Any], trainer: Any, filename: str, reset_optimizer: bool = False, *args: Any, **options: Any
) -> Any:
    """fairseq's `Trainer.load_checkpoint`; restores the state of --patience if fairseq restores the best loss."""
    extra_state = fairseqs(trainer, filename, reset_optimizer, *args, **options)
    is_resumed = extra_state is not None and not reset_optimizer and not options.get("reset_meters")
    restore_patience(trainer.cfg.checkpoint, extra_state.get(PATIENCE, {}) if is_resumed else {})
    return extra_state


def train(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """Run fairseq's epoch, unless the training is finished; see fault 8."""
    # This run's time does not count: ranks may differ in it, and fairseq checks it after each update.
    hours = trainer._previous_training_time / 3600
    reason = why_finished(cfg, updates=trainer.get_num_updates(), hours=hours)
    if reason is None or getattr(trainer, update_end.KEY, None) is not None:  # its validation is still due
        return fairseqs(cfg, trainer, task, epoch_itr)
    logger.info(f"This training is finished: {reason}. Nothing to do; raise that limit to continue.")
    return [None], True


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's `load_checkpoint`; logs it if --max-epoch leaves nothing to do."""
    extra_state, epoch_itr = fairseqs(cfg, trainer, **options)
    max_epoch, epochs = trainer.cfg.optimization.max_epoch, epoch_itr.next_epoch_idx - 1
    if 0 < max_epoch <= epochs:
        logger.info(
            f"This training is finished: the checkpoint has {epochs:,} epochs, and --max-epoch is {max_epoch:,}. "
            "Nothing to do; raise that limit to continue."
        )
    return extra_state, epoch_itr


def install() -> None:
    """Check the limits before the first update too."""
    wrap(Trainer, "save_checkpoint", save_trainer)
    wrap(Trainer, "load_checkpoint", load_trainer)
    wrap(checkpoint_utils, "load_checkpoint", load_checkpoint)
    for program in programs():
        wrap(program, "train", train)
