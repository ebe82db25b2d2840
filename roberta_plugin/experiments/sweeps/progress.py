"""Progress of a sweep: on a terminal a bar for each run and one for all, else a line for each run that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tqdm import tqdm

from roberta_plugin.experiments.sweeps.run import DONE, FAILED, RUNNING, RunFolder
from roberta_plugin.progress import terminal_size
from roberta_plugin.training.log import Record, parse_line, show_on

_LOOK_EVERY_S = 1.0
_MOST_BARS = 8  # of runs, which must fit on the screen
_TAIL_BYTES = 2**15  # of a log, in which its last records are looked for
_BAR = "{l_bar}{bar}| {n:.1f} of {total} runs, {elapsed} so far, {remaining} left{postfix}"
_RUN = "{l_bar}{bar}| {n:.0f}/{total:.0f} updates, {remaining} left{postfix}"


class SweepProgress:
    """A context manager that shows the progress of the runs."""

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self._folders = folders
        self._num_ended = 0
        self._looked = time.monotonic()
        self._size = terminal_size()
        is_hidden = not sys.stderr.isatty()
        self._bar = tqdm(total=len(folders), desc="all", smoothing=0, bar_format=_BAR, disable=is_hidden, **self._size)
        self._bar_of: dict[str, Any] = {}  # by the run's name

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bar in [*self._bar_of.values(), self._bar]:
            bar.close()

    def report(self, folder: RunFolder, event: str) -> None:
        """Take note of a run that has started, has ended or is another process's."""
        if event == "started":
            return
        self._num_ended += event != "elsewhere"
        result = folder.result()
        value = f": {result['value']:.6g}" if result else f", see {folder.path / 'log.txt'}"
        of_all = f"{self._num_ended} of {len(self._folders)}"
        tqdm.write(f"{time.strftime('%H:%M:%S')} {of_all}: {folder.run.name} {event}{value}", file=sys.stdout)
        sys.stdout.flush()

    def look(self) -> None:
        """Move the bars, every second; to be called often."""
        if self._bar.disable or time.monotonic() < self._looked + _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        running = [folder for folder in self._folders if folder.state() == RUNNING][:_MOST_BARS]
        for name in self._bar_of.keys() - {folder.run.name for folder in running}:
            self._bar_of.pop(name).close()
        for folder in running:
            name = folder.run.name
            if name not in self._bar_of:
                self._bar_of[name] = tqdm(
                    total=_num_updates(folder), desc=name, bar_format=_RUN, leave=False, **self._size
                )
            last = {record.kind: record for record in _records(folder)}
            for record in sorted(last.values(), key=lambda record: record.values["num_updates"]):
                show_on(self._bar_of[name], record)
            self._bar_of[name].refresh()
        self._bar.update(max(0.0, sum(map(share_done, self._folders)) - self._bar.n))
        self._bar.refresh()


def share_done(folder: RunFolder) -> float:
    """How much of a run is done, 0 to 1: its updates, by its log; 1 for one that has ended."""
    if folder.state() in (DONE, FAILED):
        return 1.0
    total, records = _num_updates(folder), _records(folder)
    return min(1.0, records[-1].values["num_updates"] / total) if records and total else 0.0


def _num_updates(folder: RunFolder) -> int | None:
    """The updates of the whole run; None if its options do not say."""
    arguments = folder.run.arguments
    return int(arguments[arguments.index("--max-update") + 1]) if "--max-update" in arguments[:-1] else None


def _records(folder: RunFolder) -> list[Record]:
    """The last records of a run's log."""
    try:
        with open(folder.path / "log.txt", "rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            lines = log.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [record for line in lines if (record := parse_line(line)) and "num_updates" in record.values]
