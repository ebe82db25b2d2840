"""Fault 18: a stop skips the validation of its update for good.

A stop skips or interrupts the end of an update (fairseq's `validate_and_save`). Its checkpoint notes that, and the next
start runs it before the first update. So `checkpoint_best.pt`, --keep-best-checkpoints and --patience come out as in a
training that was never stopped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds.training_loop import wrap

KEY = "unfinished_update"  # attribute of the trainer, and key in a checkpoint's extra_state


class ValidationLeftError(Exception):
    """All ranks leave the validation because of a stop."""


class _NothingToTrainError(Exception):
    """The training ends before the first update of this epoch."""

    def __init__(self, losses: list[float | None]) -> None:
        super().__init__()
        self.losses = losses


@dataclass(frozen=True)
class EndedEpoch:
    """Stands in for the iterator of an epoch whose last update is unfinished; `following` is the next epoch's."""

    epoch: int
    following: Any

    def end_of_epoch(self) -> bool:
        """True, as fairseq's iterators say after their last batch."""
        return True

    def state_dict(self) -> Any:
        """The next epoch's first state."""
        return self.following.state_dict()


def is_last(cfg: Any, trainer: Any, epoch_itr: Any, *, end_of_epoch: bool) -> bool:
    """Whether the training ends with this update, so that a stop is pointless."""
    if 0 < cfg.optimization.max_update <= trainer.get_num_updates():
        return True
    return end_of_epoch and bool(0 < cfg.optimization.max_epoch <= epoch_itr.epoch)


@contextmanager
def leaving_validation(trainer: Any, is_to_stop: Callable[[], bool]) -> Iterator[None]:
    """While entered, a validation ends after the first batch for which `is_to_stop()` holds; all ranks must agree.

    Raises:
        ValidationLeftError: when the validation ends early.
    """
    valid_step = trainer.valid_step

    def step(*args: Any, **options: Any) -> Any:
        result = valid_step(*args, **options)
        if is_to_stop():
            raise ValidationLeftError
        return result

    trainer.valid_step = step
    try:
        yield
    finally:
        trainer.valid_step = valid_step


def save_unfinished(checkpoint: Any, trainer: Any, epoch_itr: Any, *, end_of_epoch: bool) -> None:
    """Save a checkpoint that leaves the end of this update to the next start."""
    setattr(trainer, KEY, {"epoch": epoch_itr.epoch, "end_of_epoch": end_of_epoch})
    checkpoint_utils.save_checkpoint(checkpoint, trainer, epoch_itr, None)


def train(
    fairseqs: Callable[..., Any],
    cfg: Any,
    trainer: Any,
    task: Any,
    epoch_itr: Any,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Any:
    """Run fairseq's epoch; before its first update, finish the update that a stop left, and ask `is_stopped()`.

    `Trainer.begin_epoch` is fairseq's last call before it takes a batch.
    """
    left = getattr(trainer, KEY, None)
    setattr(trainer, KEY, None)
    validate_and_save = inspect.unwrap(fairseqs).__globals__.get("validate_and_save")
    begin_epoch = trainer.begin_epoch

    def begin(epoch: int) -> None:
        begin_epoch(epoch)
        if left is not None:
            _finish(left, validate_and_save, cfg, trainer, task, epoch_itr)
        if is_stopped():
            raise _NothingToTrainError([None])

    trainer.begin_epoch = begin
    try:
        return fairseqs(cfg, trainer, task, epoch_itr)
    except _NothingToTrainError as end:
        return end.losses, True
    finally:
        trainer.begin_epoch = begin_epoch


def _finish(left: dict[str, Any], validate_and_save: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> None:
    subsets = cfg.dataset.valid_subset.split(",")
    ended = EndedEpoch(left["epoch"], epoch_itr) if left["end_of_epoch"] else epoch_itr
    losses, is_done = validate_and_save(cfg, trainer, task, ended, subsets, left["end_of_epoch"])
    if is_done:
        raise _NothingToTrainError(losses)
    if left["end_of_epoch"] and losses[0] is not None:
        trainer.lr_step(left["epoch"], losses[0])


def save_checkpoint(fairseqs: Callable[..., Any], trainer: Any, filename: str, extra_state: dict[str, Any]) -> Any:
    """fairseq's `Trainer.save_checkpoint`, with a note of an unfinished update."""
    left = getattr(trainer, KEY, None)
    return fairseqs(trainer, filename, extra_state if left is None else {**extra_state, KEY: left})


def load_checkpoint(
    fairseqs: Callable[..., Any], trainer: Any, filename: str, reset_optimizer: bool = False, *args: Any, **options: Any
) -> Any:
    """fairseq's `Trainer.load_checkpoint`; the note is ignored if only the weights are used."""
    extra_state = fairseqs(trainer, filename, reset_optimizer, *args, **options)
    is_resumed = extra_state is not None and not reset_optimizer and not options.get("reset_meters")
    setattr(trainer, KEY, extra_state.get(KEY) if is_resumed else None)
    return extra_state


def install() -> None:
    """Save and load the note; `interruption` and `launch/update_hook.py` do the rest."""
    wrap(Trainer, "save_checkpoint", save_checkpoint)
    wrap(Trainer, "load_checkpoint", load_checkpoint)
