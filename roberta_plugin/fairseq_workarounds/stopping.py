"""Faults 9 and 18: a stop loses work, and the validation of its update.

All ranks must stop at the same update. A rank that got a signal announces it in the criterion's logging output, which
the ranks exchange at every update anyway (`add_stop`, `note_stop`; called by our tasks): no collective is added. With
several GPUs fairseq-train spawns its ranks; the parent process forwards signals to them and exits with their exit code.

A stop skips or interrupts the end of an update (fairseq's `validate_and_save`). Its checkpoint notes that, and the next
start runs it before the first update. So `checkpoint_best.pt`, --keep-best-checkpoints and --patience come out as in a
training that was never stopped. `launch/update_hook.py` stops its trainings in the same way.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from types import FrameType, TracebackType
from typing import Any

import torch.distributed as dist
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from omegaconf import OmegaConf
from torch.multiprocessing.spawn import ProcessExitedException

from roberta_plugin.fairseq_workarounds.hooks import function_behind
from roberta_plugin.fairseq_workarounds.resuming import UNFINISHED
from roberta_plugin.stop_signals import StopSignals

logger = logging.getLogger(__name__)

STOPS = "stops_after_this_update"  # key in the logging output
EXIT_CODES = (128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP, 128 + signal.SIGUSR1)


class Interruption(StopSignals):
    """Handler of Ctrl-C, SIGTERM, SIGHUP and SIGUSR1: notes the first signal during training, acts as usual otherwise.

    A second Ctrl-C acts as usual, too.
    """

    def __init__(self) -> None:
        super().__init__(())
        self.is_training = False
        self.is_agreed = False  # whether all ranks know of it
        self.has_stopped = False
        self._has_trained = False
        self._num_interrupts = 0

    def begin(self) -> None:
        """Install the handlers, unless a job of `roberta launch` has installed its own, or this was done before."""
        if self._has_trained or not self.handlers_before:  # what an earlier training of this process has left
            self.received, self.is_agreed, self.has_stopped, self._num_interrupts = None, False, False, 0
            self._has_trained = False
        if threading.current_thread() is not threading.main_thread() or self.handlers_before:
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        usual = {
            signal.SIGINT: signal.default_int_handler,
            signal.SIGTERM: signal.SIG_DFL,
            signal.SIGHUP: signal.SIG_DFL,
            signal.SIGUSR1: signal.SIG_DFL,  # which clusters send before a job's time is up
        }
        # Signals that nohup and background jobs ignore stay ignored.
        self.signals = tuple(number for number, handler in usual.items() if signal.getsignal(number) is handler)
        self.__enter__()
        Finalize(None, self.end, exitpriority=100)  # before Python waits for data-loader workers, which block signals

    def end(self) -> None:
        """Restore the former handlers."""
        self.end_training()
        if self.handlers_before:
            self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.handlers_before = {}

    @contextmanager
    def training(self, trainer: Any) -> Iterator[None]:
        """An epoch begins: from here on a signal stops the training, if it can be announced to all ranks.

        So it does between this epoch and the next, while the next one's data are loaded, until `end_training`.
        """
        hears = trainer.data_parallel_world_size == 1 or getattr(trainer.task, "announces_stops", False)
        self.is_training = bool(self.handlers_before) and hears
        self._has_trained = True
        try:
            yield
        except BaseException:
            self.end_training()
            raise

    def note_stop(self) -> None:
        """The training stops after this update."""
        self.has_stopped = True

    def end_training(self) -> None:
        """No update follows: from here on signals act as usual."""
        self.is_training = False

    def is_to_stop(self, trainer: Any) -> bool:
        """True if the training stops after the update just made; the same on all ranks."""
        return self.is_training and (
            self.is_agreed or (self.received is not None and trainer.data_parallel_world_size == 1)
        )

    def _note(self, number: int, frame: FrameType | None) -> None:
        ranks = [child for child in multiprocessing.active_children() if isinstance(child, SpawnProcess)]
        self._num_interrupts += number == signal.SIGINT
        if self._num_interrupts > 1 or not (self.is_training or ranks):
            for rank in ranks:
                rank.kill()
            _act_as_usual(number, frame)
            return
        if self.received is None:
            self.received = signal.Signals(number)
            if multiprocessing.parent_process() is None:
                text = "stopping after this update and a checkpoint; a second Ctrl-C stops at once"
                with suppress(OSError):  # the reader of our output may be dead
                    os.write(2, f"\n{self.received.name}: {text}\n".encode())
        for rank in ranks:
            if rank.pid is not None:
                os.kill(rank.pid, signal.SIGTERM)


def _act_as_usual(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        signal.default_int_handler(number, frame)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


interruption = Interruption()


def add_stop(logging_output: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a batch's logging output whether this rank got a signal."""
    return {**logging_output, STOPS: float(interruption.received is not None)}


def note_stop(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
    """Note a stop if the logging outputs of all ranks announce one."""
    if any(float(output.get(STOPS, 0.0)) > 0 for output in logging_outputs):
        interruption.is_agreed = True


def call_main(fairseqs: Callable[..., None], cfg: Any, main: Any, **options: Any) -> None:
    """fairseq's `call_main`, which starts a program on all ranks, with our handlers; see fault 9."""
    interruption.begin()
    try:
        fairseqs(cfg, main, **options)
    except ProcessExitedException as error:
        if error.exit_code not in EXIT_CODES:
            raise
        sys.exit(128 + (interruption.received or signal.Signals(error.exit_code - 128)))
    finally:
        interruption.end()


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's `load_checkpoint`: the first wrapped call in a spawned rank, and before any data-loader worker."""
    interruption.begin()
    return fairseqs(cfg, trainer, **options)


def train(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """Run fairseq's epoch; end the program if the epoch was stopped."""
    with interruption.training(trainer):
        is_stopped = partial(_is_stopped_before_update, cfg, trainer, epoch_itr)
        result = train_after_unfinished_update(fairseqs, cfg, trainer, task, epoch_itr, is_stopped)
        if not interruption.has_stopped:
            losses, is_done = result
            if is_done or epoch_itr.next_epoch_idx > (cfg.optimization.max_epoch or math.inf):
                interruption.end_training()
                if losses[0] is not None and hasattr(task, "end_training"):  # not stopped by `roberta launch`
                    task.end_training()
            return result
        if cfg.checkpoint.write_checkpoints_asynchronously:
            PathManager.async_close()
        if dist.is_initialized():  # rank 0 is still writing, and the launcher may kill all ranks once one has exited
            dist.barrier(distributed_utils.get_global_group())
        logger.info(farewell(cfg.checkpoint, updates=trainer.get_num_updates()))
        sys.exit(128 + (interruption.received or signal.SIGTERM))


def farewell(checkpoint: Any, *, updates: int) -> str:
    """The last line of a stopped training: the saved update, and how to resume."""
    name = interruption.received.name if interruption.received else "a signal to another rank"
    stopped = f"Stopped by {name} after update {updates:,}"
    if checkpoint.no_save or checkpoint.no_last_checkpoints:
        return f"{stopped}, which is not saved: --no-save or --no-last-checkpoints was given."
    last = os.path.join(checkpoint.save_dir, "checkpoint_last.pt")
    return f"{stopped}, which is saved in {last}: the same command resumes from there."


def validate_and_save(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, *args: Any) -> Any:
    """End an update as `finish_update` does, and stop if a signal came."""
    if not interruption.is_training:  # a job of `roberta launch` stops by its own signals
        return fairseqs(cfg, trainer, *args)
    is_to_stop = partial(interruption.is_to_stop, trainer)
    update, note = (cfg, trainer, *args), interruption.note_stop
    with _stops_in_validation(trainer):
        return finish_update(fairseqs, update, is_stopped=is_to_stop(), is_to_stop=is_to_stop, on_stop=note)


@contextmanager
def _stops_in_validation(trainer: Any) -> Iterator[None]:
    """While entered, validation batches announce a stop to several ranks, too."""
    task = trainer.task
    if trainer.data_parallel_world_size == 1:
        yield
        return
    valid_step = task.valid_step

    def step(*args: Any, **options: Any) -> tuple[Any, Any, dict[str, Any]]:
        loss, sample_size, logging_output = valid_step(*args, **options)
        return loss, sample_size, add_stop(logging_output)

    task.valid_step = step
    try:
        yield
    finally:
        task.valid_step = valid_step


def _is_stopped_before_update(cfg: Any, trainer: Any, epoch_itr: Any) -> bool:
    """Stop between two epochs: the last update is complete, so save the beginning of the next epoch."""
    if interruption.is_to_stop(trainer) and not interruption.has_stopped:
        without_copy = OmegaConf.merge(
            cfg.checkpoint, {"save_interval_updates": 0}
        )  # its name would have the next epoch
        _save_to_resume(without_copy, trainer, epoch_itr)
        interruption.has_stopped = True
    return interruption.has_stopped


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


def is_last_update(cfg: Any, trainer: Any, epoch_itr: Any, *, end_of_epoch: bool) -> bool:
    """True if the training ends with this update, so that a stop is pointless."""
    if 0 < cfg.optimization.max_update <= trainer.get_num_updates():
        return True
    if 0 < cfg.optimization.stop_time_hours < trainer.cumulative_training_time() / 3600:  # equal on all ranks
        return True
    return end_of_epoch and bool(0 < cfg.optimization.max_epoch <= epoch_itr.epoch)


def finish_update(
    fairseqs: Callable[..., Any],
    update: tuple[Any, ...],
    *,
    is_stopped: bool,
    is_to_stop: Callable[[], bool],
    on_stop: Callable[[], None],
) -> Any:
    """Call fairseq's `validate_and_save`, or, if the training must stop here, save a checkpoint without validating.

    A running validation is interrupted; the next start runs it first. The last update of the training never stops
    early: its validation belongs to the result.

    Args:
        fairseqs: fairseq's function.
        update: its arguments.
        is_stopped: whether to stop before the validation, the same on all ranks.
        is_to_stop: asked after each batch of the validation; all ranks must agree.
        on_stop: called before the checkpoint is written.
    """
    cfg, trainer, _, epoch_itr, _, end_of_epoch = update
    is_last = is_last_update(cfg, trainer, epoch_itr, end_of_epoch=end_of_epoch)
    if is_last or not is_stopped:
        leaving = nullcontext() if is_last else leaving_validation(trainer, is_to_stop)
        with suppress(ValidationLeftError), leaving:
            return fairseqs(*update)
    on_stop()
    setattr(trainer, UNFINISHED, {"epoch": epoch_itr.epoch, "end_of_epoch": end_of_epoch})
    _save_to_resume(cfg.checkpoint, trainer, epoch_itr)
    return [None], True


def _save_to_resume(checkpoint: Any, trainer: Any, epoch_itr: Any) -> None:
    """Save the checkpoint of a stop: with the optimizer's state, whatever --no-save-optimizer-state says of others."""
    of_trainer = trainer.cfg.checkpoint
    is_left_out, of_trainer.no_save_optimizer_state = of_trainer.no_save_optimizer_state, False
    try:
        checkpoint_utils.save_checkpoint(checkpoint, trainer, epoch_itr, None)
    finally:
        of_trainer.no_save_optimizer_state = is_left_out


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


def train_after_unfinished_update(
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
    left = getattr(trainer, UNFINISHED, None)
    setattr(trainer, UNFINISHED, None)
    validate_and_save = function_behind(fairseqs).__globals__.get("validate_and_save")
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
