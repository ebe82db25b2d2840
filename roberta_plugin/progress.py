"""Progress of a long step: a bar on a terminal, a line every now and then in a log file.

`Progress` counts bytes (`roberta binarize`, `roberta tokenizer train`), `progress_bar` anything (`roberta demo`);
`terminal_bar` writes nothing where there is no terminal (`roberta prepare`).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO, TypeVar

Step = TypeVar("Step")

_FIRST_LINE = 30.0  # seconds; a step that is done by then writes no line
_SHARE_OF_ELAPSED = 0.1  # later lines come after a tenth of the time so far, ...
_LONGEST_SILENCE = 600.0  # ... but at least every ten minutes


class Progress:
    """A context manager around one step that counts bytes."""

    def __init__(self, label: str, total: int | None, *, is_shown: bool = True, stream: TextIO | None = None) -> None:
        self.label, self.total = label, total
        self._stream = stream if stream is not None else sys.stderr
        self._is_shown = is_shown
        self._started = time.monotonic()
        self._next_line = _FIRST_LINE
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._is_shown and self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self.total, unit="B", unit_scale=True, desc=self.label, file=self._stream, **terminal_size()
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            if kind is None and self.total is not None:
                self.show(self.total)  # parts may not have reported every byte
            self._bar.close()

    def show(self, num_bytes: int) -> None:
        """Show that `num_bytes` of the total are done; cheap enough to call often."""
        if self.total is not None:
            num_bytes = min(num_bytes, self.total)
        if self._bar is not None:
            self._bar.update(num_bytes - self._bar.n)
            return
        elapsed = time.monotonic() - self._started
        if self._is_shown and elapsed >= self._next_line:
            self._next_line = elapsed + min(max(_FIRST_LINE, elapsed * _SHARE_OF_ELAPSED), _LONGEST_SILENCE)
            self._stream.write(f"{describe(self.label, num_bytes, self.total, elapsed)}\n")
            self._stream.flush()


def terminal_size() -> dict[str, int]:
    """The terminal's size as options of tqdm; 80 x 24 if unknown (`script`), where tqdm would draw nothing."""
    size = shutil.get_terminal_size()
    return {"ncols": size.columns, "nrows": size.lines}


def progress_bar(label: str, **options: Any) -> Any:
    """A tqdm bar on stderr with tqdm's own `options`; where stderr is not a terminal, it prints a line every 20 s."""
    from tqdm import tqdm

    return tqdm(desc=f"      {label}", mininterval=0.5 if sys.stderr.isatty() else 20.0, **terminal_size(), **options)


def terminal_bar(steps: Iterable[Step], label: str, *, unit: str) -> Iterator[Step]:
    """Iterate over `steps`, with a bar on stderr if stderr is a terminal."""
    from tqdm import tqdm

    # With `disable=None`, tqdm writes to terminals only
    yield from tqdm(steps, desc=label, unit=unit, mininterval=1.0, leave=False, disable=None, **terminal_size())


def describe(label: str, num_bytes: int, total: int | None, elapsed: float) -> str:
    """One line: bytes done, speed, and the time left at this speed."""
    speed = num_bytes / elapsed if elapsed > 0 else 0.0
    if total is None:
        return f"{label}: {num_bytes / 1e6:,.0f} MB, {speed / 1e6:,.1f} MB/s, {_duration(elapsed)} so far"
    left = f"{_duration((total - num_bytes) / speed)} left" if speed > 0 else "time left unknown"
    share = num_bytes / total if total else 1.0
    return f"{label}: {num_bytes / 1e6:,.0f} of {total / 1e6:,.0f} MB ({share:.0%}), {speed / 1e6:,.1f} MB/s, {left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
