"""Fault 22: every checkpoint stops all GPUs until rank 0 has written it, and its copies, to the disk.

With --background-checkpoints the training stops only while its state is copied to host memory. A background thread runs
fairseq's own `checkpoint_utils.save_checkpoint` and leaves all calls of the trainer to the training thread:

    training thread       background thread
    begin()           ->  names of the files, comparison with the best loss so far
    consolidates      <-  trainer.consolidate_optimizer()
    copies the state  <-  trainer.save_checkpoint(FILE, ...)
    resumes training      writes FILE (`checkpoints.save_whole`: temporary name, checksums, fsync, rename),
                          copies it to checkpoint_last.pt and others, then deletes old files

One at a time: a save waits for the one before it; so does the end of the training, however it ends, except by kill -9
and a second Ctrl-C. A file that cannot be written ends the training at the next update, with the error that it has
without the option.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from fairseq import utils
from torch import Tensor

from roberta_plugin.fairseq_workarounds import lost_ranks
from roberta_plugin.fairseq_workarounds.checkpoints import save_whole
from roberta_plugin.fairseq_workarounds.host_copy import HostMemory

logger = logging.getLogger(__name__)

OPTION = "background_checkpoints"


class _CopiedError(Exception):
    """Ends `Trainer.save_checkpoint` when the state is copied."""

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.state = state


class _Save:
    """Runs the save in a background thread; the training thread answers its calls until the state is copied."""

    def __init__(self, save: Callable[[Callable[..., Any], Callable[[], None]], Any]) -> None:
        self._save = save
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._error: BaseException | None = None
        self.is_copied = False

    def begin(self) -> None:
        """Run until the state is copied, or until the end if there is nothing to write."""
        self._thread.start()
        while (call := self._calls.get()) is not None:
            function, answer = call
            try:
                answer.set_result(function())
            except Exception as error:
                answer.set_exception(error)

    @property
    def is_done(self) -> bool:
        """Whether the save has ended, with or without an error."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until it is written.

        Raises:
            OSError: if it cannot be.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._save(self._in_training, self._go_on)
        except BaseException as error:
            self._error = error
        finally:
            self._calls.put(None)

    def _go_on(self) -> None:
        self.is_copied = True
        self._calls.put(None)

    def _in_training(self, function: Callable[[], Any]) -> Any:
        answer: Future[Any] = Future()
        self._calls.put((function, answer))
        return answer.result()


class _TrainerInThread:
    """The trainer, as `save_checkpoint` in the thread sees it."""

    def __init__(self, trainer: Any, in_training: Callable[..., Any], go_on: Callable[[], None]) -> None:
        self._trainer, self._in_training, self._go_on = trainer, in_training, go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def consolidate_optimizer(self) -> None:
        """A collective of some optimizers."""
        self._in_training(self._trainer.consolidate_optimizer)

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> str:
        """Copy the state, resume training, and write the copy."""
        state = self._in_training(lambda: _copy_state(self._trainer, filename, extra_state))
        self._go_on()
        save_whole(utils.move_to_cpu(state), filename)
        logger.info(f"Finished saving checkpoint to {os.path.abspath(filename)}")
        return os.path.abspath(filename)


class BackgroundWriter:
    """Writes one checkpoint at a time; there is one such writer in a process."""

    def __init__(self) -> None:
        self.memory = HostMemory()
        self.copied: dict[int, Tensor] | None = None
        """The part of the state that has been copied so far."""
        self._save: _Save | None = None

    def begin(self, fairseqs: Callable[..., Any], cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> None:
        """Wait for the previous checkpoint, copy the state, and begin to write it.

        Raises:
            OSError: if the previous one could not be written.
        """
        started = time.perf_counter()
        self.wait()
        waited = time.perf_counter() - started
        self._save = _Save(lambda *calls: fairseqs(cfg, _TrainerInThread(trainer, *calls), epoch_itr, val_loss))
        try:
            self._save.begin()
        except BaseException:  # Ctrl-C: the thread may wait for an answer for ever
            self.abandon()
            raise
        if not self._save.is_copied:  # nothing to write, or an error
            self.wait()
            return
        before = f", {waited:.2f} s of them for the previous checkpoint" if waited > 0.1 else ""
        logger.info(
            f"The training stood still for {time.perf_counter() - started:.2f} s{before}; the checkpoint of update "
            f"{trainer.get_num_updates()} is written in the background."
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing is being written."""
        return self._save is None or self._save.is_done

    def check(self) -> None:
        """Raise the error of a checkpoint that could not be written; do not wait for one that is being written."""
        if self._save is not None and self._save.is_done:
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint is written, with its copies.

        Raises:
            OSError: if it cannot be.
        """
        save, self._save = self._save, None
        if save is not None:
            with lost_ranks.doing("saving"):
                save.wait()

    def abandon(self) -> None:
        """Stop waiting for the checkpoint."""
        self._save = None

    def at_exit(self) -> None:
        """Wait for the save; an unreported failure sets the exit code."""
        try:
            self.wait()
        except Exception as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


writer = BackgroundWriter()
atexit.register(writer.at_exit)


def is_on(trainer: Any) -> bool:
    """Whether --background-checkpoints was given."""
    return bool(getattr(trainer.cfg.task, OPTION, False))


def save_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
    """Wraps fairseq's function; with the option, it returns when the state is copied."""
    if not is_on(trainer) or cfg.no_save or not trainer.should_save_checkpoint_on_current_rank:
        return fairseqs(cfg, trainer, epoch_itr, val_loss)
    writer.begin(fairseqs, cfg, trainer, epoch_itr, val_loss)
    return None


def move_to_cpu(fairseqs: Callable[..., Any], sample: Any) -> Any:
    """Copy the state to host memory; fairseq's function copies nothing on a CPU, and doubles a GPU's half precision."""
    if writer.copied is None:
        return fairseqs(sample)
    state = writer.memory.copy(sample)
    tensors: list[Tensor] = []
    utils.apply_to_sample(tensors.append, state)
    writer.copied.update({id(tensor): tensor for tensor in tensors})
    return state


def persistent_save(fairseqs: Callable[..., None], obj: Any, filename: str, async_write: bool = False) -> None:
    """fairseq's `torch_persistent_save`; hands the state over while a checkpoint is begun."""
    if writer.copied is None:
        fairseqs(obj, filename, async_write)
        return
    # Other values than tensors (meters, learning rates, positions in the data) also keep changing.
    raise _CopiedError(copy.deepcopy(obj, {**writer.copied}))


def validate_and_save(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Raise the error of a failed save, then run fairseq's function; called after each update."""
    writer.check()
    return fairseqs(*args, **options)


def train(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """Run fairseq's epoch; after the last one, wait until its checkpoint is written."""
    try:
        losses, is_done = fairseqs(cfg, trainer, task, epoch_itr)
    except KeyboardInterrupt:  # the second Ctrl-C
        writer.abandon()
        raise
    if is_done or epoch_itr.next_epoch_idx > (cfg.optimization.max_epoch or float("inf")):
        writer.wait()
    return losses, is_done


def main(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's program, then wait until the last checkpoint is written."""
    result = fairseqs(*args, **options)
    writer.wait()
    return result


def _copy_state(trainer: Any, filename: str, extra_state: dict[str, Any]) -> dict[str, Any]:
    """The content that `Trainer.save_checkpoint` would write."""
    writer.copied = {}
    try:
        trainer.save_checkpoint(filename, extra_state)
    except _CopiedError as copied:
        return copied.state
    finally:
        writer.copied = None
    raise AssertionError("Trainer.save_checkpoint has written nothing")
