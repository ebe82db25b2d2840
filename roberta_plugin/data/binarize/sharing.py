"""A worker that reads a compressed file or a pipe hands parts of its text to idle workers.

Used by `workers`. Only one process can read such an input, from its beginning; encoding takes several times as long as
reading, so one reader can keep several workers busy. If no worker is idle, the reader encodes the part itself; many
compressed files thus need no hand-over, and memory holds no queue of text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SECONDS_BETWEEN_LOOKS = 0.05


class Sharing:
    """State shared by readers and idle workers; created before the workers.

    Every successful `claim` reserves one idle worker, which then waits for the matching `give`.
    """

    def __init__(self, context: Any, *, num_readers: int) -> None:
        self._num_idle = context.Value("i", 0)
        self._num_readers = context.Value("i", num_readers)
        self._num_given = context.Semaphore(0)
        self._given = context.SimpleQueue()

    def claim(self) -> bool:
        """Reserve an idle worker, if there is one; `give` must follow."""
        with self._num_idle.get_lock():
            if self._num_idle.value == 0:
                return False
            self._num_idle.value -= 1
            return True

    def give(self, part: Any) -> None:
        """Give the reserved worker its part; None if reading it failed."""
        self._num_given.release()
        self._given.put(part)

    def end_reader(self) -> None:
        """Note the end of a task that may share its parts."""
        with self._num_readers.get_lock():
            self._num_readers.value -= 1

    def take(self, is_stopped: Callable[[], bool]) -> Any | None:
        """Wait idle for a part; None when no reader is left or the run was stopped."""
        while True:
            with self._num_idle.get_lock():
                self._num_idle.value += 1
            while not self._num_given.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
                if (
                    is_stopped() or self._num_readers.value <= 0
                ) and self.claim():  # no reader has reserved this worker
                    return None
            part = self._given.get()
            if part is not None:
                return part
