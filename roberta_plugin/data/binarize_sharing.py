"""How a worker that reads a compressed file or a pipe hands parts of its text to workers that have nothing to do.

Used by `binarize_workers`. Such an input can only be read from its beginning, by one process; encoding takes several
times as long as reading, so one reader can keep some more workers busy. A reader keeps a part for itself when nobody is
idle, so many compressed files need no hand-over, and memory holds no queue of text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SECONDS_BETWEEN_LOOKS = 0.05


class Sharing:
    """What readers and idle workers share; made before the workers are.

    Every `claim` that succeeds takes one idle worker, which from then on waits for the `give` of it.
    """

    def __init__(self, context: Any, *, num_readers: int) -> None:
        self._num_idle = context.Value("i", 0)
        self._num_readers = context.Value("i", num_readers)
        self._num_given = context.Semaphore(0)
        self._given = context.SimpleQueue()

    def claim(self) -> bool:
        """Take an idle worker, if there is one, who must then be given something."""
        with self._num_idle.get_lock():
            if self._num_idle.value == 0:
                return False
            self._num_idle.value -= 1
            return True

    def give(self, part: Any) -> None:
        """Give the claimed worker what it shall work on; None if it came to nothing."""
        self._num_given.release()
        self._given.put(part)

    def end_reader(self) -> None:
        """A task that may give parts away has ended."""
        with self._num_readers.get_lock():
            self._num_readers.value -= 1

    def take(self, is_stopped: Callable[[], bool]) -> Any | None:
        """Be idle until there is a part; None when no reader is left, or the run was stopped."""
        while True:
            with self._num_idle.get_lock():
                self._num_idle.value += 1
            while not self._num_given.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
                if (is_stopped() or self._num_readers.value <= 0) and self.claim():  # nobody has claimed this worker
                    return None
            part = self._given.get()
            if part is not None:
                return part
