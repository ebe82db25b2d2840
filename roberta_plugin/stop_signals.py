"""Signals that are noted instead of acted on, by a training that stops after the update at hand.

`fairseq_workarounds/interruption.py` has them for Ctrl-C and SIGTERM in any fairseq-train, `cluster/preemption.py` for
what SLURM sends.
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
    """While entered, notes `signals` instead of acting on them; for the main thread.

    Processes that are forked meanwhile (data-loader workers) block these signals: torch's handlers in a worker would
    end it, and the training with it, before the update at hand is done.
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
        for number, handler in self.handlers_before.items():  # SIGCHLD: torch raises where a worker is killed
            signal.signal(number, handler)
        for child in multiprocessing.active_children():  # they would ignore the polite request at exit, and it wait
            child.kill()
            child.join()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)


def _block_in_child() -> None:
    with contextlib.suppress(ValueError):
        signal.pthread_sigmask(signal.SIG_BLOCK, _blocked_in_children)


os.register_at_fork(after_in_child=_block_in_child)
