"""Progress of a long step: a bar on a terminal, a line every now and then in a log file.

`Progress` counts bytes (`roberta binarize`, `roberta tokenizer train`), `progress_bar` anything (`roberta demo`);
`terminal_bar` writes nothing where there is no terminal (`roberta prepare`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

Step = TypeVar("Step")

_FIRST_LINE = 30.0  # seconds; a step that is done by then writes no line
_SHARE_OF_ELAPSED = 0.1  # later lines come after a tenth of the time so far, ...
_LONGEST_SILENCE = 600.0  # ... but at least every ten minutes
_LINE = "{desc}: {percentage:.0f}% of {total_fmt}, {rate_fmt}, {remaining} left"


class Progress(tqdm):
    """A context manager around one step that counts bytes."""

    monitor_interval = 0  # no thread that redraws the bar: steps fork

    def __init__(self, label: str, total: int | None, *, is_shown: bool = True, stream: TextIO | None = None) -> None:
        stream = stream if stream is not None else sys.stderr
        self._is_log = not stream.isatty()
        in_log = {"delay": _FIRST_LINE, "mininterval": _FIRST_LINE, "bar_format": _LINE if total else None}
        super().__init__(
            total=total,
            unit="B",
            unit_scale=True,
            miniters=0,  # the clock alone decides
            desc=label,
            file=_Lines(stream) if self._is_log else stream,
            disable=not is_shown,
            **(in_log if self._is_log else {}),
            **terminal_size(),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.total is not None:
            self.show(self.total)  # parts may not have reported every byte
        self.close()

    def show(self, num_bytes: int) -> None:
        """Show that `num_bytes` of the total are done; cheap enough to call often."""
        if self.disable:
            return
        if self._is_log:
            share = _SHARE_OF_ELAPSED * self.format_dict["elapsed"]
            self.mininterval = min(max(_FIRST_LINE, share), _LONGEST_SILENCE)
        self.update((num_bytes if self.total is None else min(num_bytes, self.total)) - self.n)


class _Lines:
    """A stream on which what tqdm would draw over and over becomes lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a drawn bar as a line."""
        if text := text.strip():
            self._stream.write(f"{text}\n")

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


def terminal_size() -> dict[str, int]:
    """The size of stderr's terminal as options of tqdm; 80 x 24 if unknown (`script`): tqdm would draw nothing."""
    size = shutil.get_terminal_size()  # of stdout, which may be a pipe
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(sys.stderr.fileno()) if sys.stderr.isatty() else size
    return {"ncols": size.columns or 80, "nrows": size.lines or 24}


def progress_bar(label: str, **options: Any) -> Any:
    """A tqdm bar on stderr with tqdm's own `options`; where stderr is not a terminal, it prints a line every 20 s."""
    if not sys.stderr.isatty():  # without a width, tqdm cuts no line
        return tqdm(desc=label, **{**options, "mininterval": 20.0, "file": _Lines(sys.stderr)})
    return tqdm(desc=f"      {label}", **{"mininterval": 0.5, **options}, **terminal_size())


def terminal_bar(steps: Iterable[Step], label: str, *, unit: str) -> Iterator[Step]:
    """Iterate over `steps`, with a bar on stderr if stderr is a terminal."""
    # With `disable=None`, tqdm writes to terminals only
    yield from tqdm(steps, desc=label, unit=unit, mininterval=1.0, leave=False, disable=None, **terminal_size())
