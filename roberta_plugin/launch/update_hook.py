"""After every update: stop if a signal came, save every --checkpoint-minutes, write the status.

fairseq's training loop ends every update with `fairseq_cli.train.validate_and_save`: while it is entered, `UpdateHook`
is its first listener (`fairseq_workarounds/hooks.py`). All ranks agree on a stop, so that they leave at the same
update. A stop interrupts a running validation, which could outlast the grace period of the signal; the next start runs
it first (`fairseq_workarounds/stopping.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from roberta_plugin import fairseq_import  # isort: skip  -- before anything else of fairseq
import torch
import torch.distributed as dist
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds import heartbeats, stopping
from roberta_plugin.fairseq_workarounds.half_precision import has_ranks
from roberta_plugin.fairseq_workarounds.hooks import listening
from roberta_plugin.fairseq_workarounds.late_reads import HostCopy
from roberta_plugin.launch.rendezvous import attempt
from roberta_plugin.launch.run_folder import Status, write_status
from roberta_plugin.stop_signals import StopSignals

with fairseq_import.no_basic_config():  # a program of its own, which sets up logging
    import fairseq_cli.train

logger = logging.getLogger(__name__)

STATUS_SECONDS = 10.0


class UpdateHook:
    """Listens to `validate_and_save` while it is entered."""

    def __init__(
        self, stop: StopSignals, *, output_dir: Path, job_id: str, checkpoint_minutes: float, is_master: bool
    ) -> None:
        self.has_stopped = False
        self.update = 0
        self._stop = stop
        self._run_dir = output_dir
        self._job_id = job_id
        self._save_seconds = 60 * checkpoint_minutes
        self._is_master = is_master
        self._max_update = 0
        self._saved_at = time.monotonic()
        self._status_at = 0.0
        self._speed = Speed()
        self._agreed: HostCopy | None = None

    def __enter__(self) -> UpdateHook:
        with ExitStack() as stack:
            stack.enter_context(listening(fairseq_cli.train, "validate_and_save", self._after_update))
            stack.enter_context(listening(checkpoint_utils, "load_checkpoint", self._load_checkpoint))
            self._listening = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()

    def _load_checkpoint(self, fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
        """fairseq's `load_checkpoint`; also reads the update number, for a finished training makes no update."""
        loaded = fairseqs(cfg, trainer, **options)
        self.update, self._max_update = trainer.get_num_updates(), trainer.cfg.optimization.max_update
        return loaded

    def write_status(self, phase: str) -> None:
        """Write status.json, on rank 0."""
        if self._is_master:
            write_status(
                self._run_dir,
                Status(
                    job_id=self._job_id,
                    attempt=attempt(),
                    phase=phase,
                    update=self.update,
                    max_update=self._max_update,
                    loss=self._speed.loss,
                    tokens_per_second=self._speed.tokens_per_second,
                    updates_per_second=self._speed.updates_per_second,
                    time=time.time(),
                    mfu=self._speed.mfu,
                    slowest=heartbeats.slowest(),
                ),
            )

    def _after_update(self, fairseqs: Callable[..., Any], *update: Any) -> tuple[list[float | None], bool]:
        """End the update: stop if a signal came, else save if the time has come; write the status."""
        cfg, trainer, _, epoch_itr, _, end_of_epoch = update
        self._max_update = cfg.optimization.max_update
        self.update = trainer.get_num_updates()
        self._speed.count()
        is_last = stopping.is_last_update(cfg, trainer, epoch_itr, end_of_epoch=end_of_epoch)
        self._show(at_once=is_last or self._stop.received is not None)
        is_due = self._is_master and 0 < self._save_seconds <= time.monotonic() - self._saved_at
        is_stopped, is_to_save = self._agree_late(trainer, is_due) or self._agree(trainer, is_due)
        losses, is_done = stopping.finish_update(
            fairseqs, update, is_stopped=is_stopped, is_to_stop=lambda: self._agree(trainer)[0], on_stop=self._note_stop
        )
        if is_to_save and not is_done and not end_of_epoch:
            as_if_due = OmegaConf.merge(cfg.checkpoint, {"save_interval_updates": 1})  # under its own name
            checkpoint_utils.save_checkpoint(as_if_due, trainer, epoch_itr, None)
            self._saved_at = time.monotonic()
        return losses, is_done

    def _agree(self, trainer: Any, *wishes: bool) -> list[bool]:
        """True if any rank got a signal, and the same for each of the other wishes; all ranks get the same answers."""
        return agree([self._stop.received is not None, *wishes], device=trainer.device)

    def _agree_late(self, trainer: Any, *wishes: bool) -> list[bool]:
        """The same as of the update before on GPUs of several ranks, which nobody waits for; elsewhere nothing."""
        if trainer.device.type != "cuda" or not has_ranks():
            return []
        before, self._agreed = self._agreed, start_to_agree([self._stop.received is not None, *wishes], trainer.device)
        return [False] * (1 + len(wishes)) if before is None else [wish > 0 for wish in before.read()]

    def _note_stop(self) -> None:
        name = "another rank" if self._stop.received is None else self._stop.received.name
        logger.info(f"stopped by {name} after update {self.update}: saving a checkpoint")
        self.has_stopped = True

    def _show(self, *, at_once: bool) -> None:
        """Write the status after the first update, then every few seconds."""
        if self._is_master and (at_once or time.monotonic() - self._status_at >= STATUS_SECONDS):
            self._speed.measure(self.update)
            self._status_at = time.monotonic()
            self.write_status("training")


class Speed:
    """Loss and speed since the last measurement, from fairseq's log; `mfu` is fairseq's since its epoch began."""

    def __init__(self) -> None:
        self.loss: float | None = None
        self.tokens_per_second: float | None = None
        self.updates_per_second: float | None = None
        self.mfu: float | None = None
        self._time = time.monotonic()
        self._update: int | None = None
        self._tokens = 0.0
        self._loss = 0.0  # times tokens

    def count(self) -> None:
        """Add the loss and tokens of an update; fairseq resets its own sums every epoch, however short."""
        tokens = _last_value("wpb")
        self._tokens += tokens
        self._loss += tokens * _last_value("loss")

    def measure(self, update: int) -> None:
        """Compute loss (the mean over tokens) and speed since the last call."""
        now = time.monotonic()
        if metrics.get_meter("train", "mfu") is not None:
            self.mfu = float(metrics.get_smoothed_value("train", "mfu"))
        if self._tokens:
            self.loss = self._loss / self._tokens
        if self._update is not None and now > self._time:
            self.updates_per_second = (update - self._update) / (now - self._time)
            self.tokens_per_second = self._tokens / (now - self._time)
        self._time, self._update, self._tokens, self._loss = now, update, 0.0, 0.0


def agree(wishes: list[bool], *, device: torch.device) -> list[bool]:
    """Logical OR over ranks, element by element. Example: [True, False] and [False, False] -> [True, False] on both."""
    return [wish > 0 for wish in start_to_agree(wishes, device).read()] if has_ranks() else wishes


def start_to_agree(wishes: list[bool], device: torch.device) -> HostCopy:
    """The same, on its way to the host."""
    wished = torch.stack([torch.full((), int(wish), dtype=torch.int32, device=device) for wish in wishes])
    dist.all_reduce(wished, op=dist.ReduceOp.MAX)
    return HostCopy(wished)


def _last_value(key: str) -> float:
    """fairseq's logged value of the last update alone."""
    meter = metrics.get_meter("train", key)
    return 0.0 if meter is None or meter.val is None else float(meter.val)
