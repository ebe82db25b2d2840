"""Fault 27: a resumed training has other learning rates than an uninterrupted one.

fairseq saves the checkpoint of an epoch's end before the scheduler judges the epoch's loss, and a resumed training
never judges it. We do so when such a checkpoint is loaded, from the loss in it. Two schedulers also have a state that
fairseq does not save: `reduce_lr_on_plateau` counts epochs without improvement, and `polynomial_decay --force-anneal`
has the rate at the end of the epoch before. All others are functions of update and epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

_COUNT = "num_bad_epochs"
_EPOCHS_RATE = "lr_of_epoch"


def load_trainer(
    fairseqs: Callable[..., Any],
    trainer: Any,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    *args: Any,
    **options: Any,
) -> Any:
    """fairseq's `Trainer.load_checkpoint`; the scheduler then judges the epoch that the checkpoint ends."""
    extra_state = fairseqs(trainer, filename, reset_optimizer, reset_lr_scheduler, *args, **options)
    if not extra_state or reset_optimizer or reset_lr_scheduler or not trainer.get_num_updates():
        return extra_state
    position: Mapping[str, Any] = extra_state["train_iterator"]
    is_at_end = position.get("version", 1) >= 2 and position.get("iterations_in_epoch") == 0
    if not is_at_end:
        trainer.lr_scheduler.is_within_epoch = True
    elif extra_state.get("val_loss") is not None:
        trainer.lr_step(position["epoch"] - 1, extra_state["val_loss"])
    return extra_state


def plateau_state(fairseqs: Callable[..., dict[str, Any]], scheduler: Any) -> dict[str, Any]:
    """The state of `reduce_lr_on_plateau`, with its count of epochs without improvement."""
    return {**fairseqs(scheduler), _COUNT: scheduler.lr_scheduler.num_bad_epochs}


def load_plateau_state(fairseqs: Callable[..., None], scheduler: Any, state: Mapping[str, Any]) -> None:
    """Restore the state of `reduce_lr_on_plateau`; earlier checkpoints have no count."""
    fairseqs(scheduler, state)
    if _COUNT in state:
        scheduler.lr_scheduler.num_bad_epochs = state[_COUNT]
    elif scheduler.cfg.lr_patience:
        logger.warning(
            "The checkpoint has no count of epochs without improvement: --lr-patience counts from here, so that "
            "the learning rate may fall later than it would have."
        )


def step_plateau(fairseqs: Callable[..., float], scheduler: Any, epoch: int, val_loss: float | None = None) -> float:
    """Judge the loss of an epoch; without one, as at each start, `last_epoch` keeps its count of judgements."""
    return fairseqs(scheduler, epoch, val_loss) if val_loss is not None else float(scheduler.optimizer.get_lr())


def annealing_state(fairseqs: Callable[..., dict[str, Any]], scheduler: Any) -> dict[str, Any]:
    """The state of `polynomial_decay`; with --force-anneal also the rate of the epoch."""
    state = fairseqs(scheduler)
    return state if scheduler.cfg.force_anneal is None else {**state, _EPOCHS_RATE: scheduler.lr}


def load_annealing_state(fairseqs: Callable[..., None], scheduler: Any, state: Mapping[str, Any]) -> None:
    """Restore the state of `polynomial_decay`."""
    fairseqs(scheduler, state)
    if scheduler.cfg.force_anneal is not None and _EPOCHS_RATE in state:
        scheduler.lr = state[_EPOCHS_RATE]


def begin_annealed_epoch(fairseqs: Callable[..., float], scheduler: Any, epoch: int) -> float:
    """Begin an epoch of `polynomial_decay`; an epoch that is resumed in its middle keeps its rate."""
    is_within_epoch, scheduler.is_within_epoch = getattr(scheduler, "is_within_epoch", False), False
    force_anneal = scheduler.cfg.force_anneal
    if is_within_epoch and force_anneal is not None and epoch >= force_anneal:
        return float(scheduler.optimizer.get_lr())
    return fairseqs(scheduler, epoch)
