"""Signal handlers that only note a signal, so that a training can stop after the current update.

`fairseq_workarounds/stopping.py` uses them for Ctrl-C and SIGTERM in any fairseq-train, `launch/job.py` for
SLURM's signals.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

_blocked_in_children: set[signal.Signals] = set()


class StopSignals:
    """While entered, notes `signals` instead of acting on them; main thread only.

    Processes forked meanwhile (data-loader workers) block these signals: torch's handlers would end a worker, and with
    it the training, before the current update is complete.
    """

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self.signals = signals
        self.received: signal.Signals | None = None
        self.handlers_before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self.handlers_before[signal.SIGCHLD] = signal.getsignal(signal.SIGCHLD)
        for number in self.signals:
            self.handlers_before[number] = signal.signal(number, self._note)
        _blocked_in_children.update(self.signals)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _blocked_in_children.clear()
        for (
            number,
            handler,
        ) in self.handlers_before.items():  # with SIGCHLD: torch's handler raises when a worker is killed
            signal.signal(number, handler)
        for child in multiprocessing.active_children():  # they block SIGTERM, so Python would wait for them at exit
            child.kill()
            child.join()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)


def _block_in_child() -> None:
    with contextlib.suppress(ValueError):
        signal.pthread_sigmask(signal.SIG_BLOCK, _blocked_in_children)


os.register_at_fork(after_in_child=_block_in_child)
