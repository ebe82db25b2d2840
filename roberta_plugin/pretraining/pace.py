"""How a training's speed compares with its plan: a line, once, if this machine is slower."""

from __future__ import annotations

import time
from collections.abc import Callable

_MEASURED = 20.0  # seconds of training, after the first record
_SLOWER = 1.5


class Pace:
    """Compares the time of updates with the planned one."""

    def __init__(self, *, updates: int, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`hours` is the planned time of all `updates`."""
        self._updates, self._planned, self._clock = updates, 3600 * hours / updates, clock
        self._first: tuple[int, float] | None = None
        self._is_said = False

    def remark(self, update: int) -> str:
        """The remark to print after this update; nearly always empty."""
        now = self._clock()
        if self._first is None:
            self._first = update, now
        done, seconds = update - self._first[0], now - self._first[1]
        if self._is_said or seconds < _MEASURED or done <= 0:
            return ""
        self._is_said = True
        slower = seconds / done / self._planned
        if slower < _SLOWER:
            return ""
        rest = in_words((self._updates - update) * seconds / done)
        return f"{slower:.2g} times slower than planned: the rest takes about {rest}. --hours counts an idle machine."


def in_words(seconds: float) -> str:
    """As in `1 h 14 min`, `14 min` or `40 s`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
