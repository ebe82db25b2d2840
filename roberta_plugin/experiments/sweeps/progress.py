"""Progress of a sweep: on a terminal a bar over all runs with the time left, else a line for each run that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from tqdm import tqdm

from roberta_plugin.experiments.sweeps.run import DONE, FAILED, RunFolder
from roberta_plugin.training.log import parse_line

_LOOK_EVERY_S = 5.0
_TAIL_BYTES = 2**15  # of a log, in which its last record is looked for
_BAR = "{l_bar}{bar}| {n:.1f} of {total} runs, {elapsed} so far, {remaining} left{postfix}"


class SweepProgress:
    """A context manager that shows the progress of the runs."""

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self._folders = folders
        self._num_ended = 0
        self._looked = time.monotonic()
        self._bar = tqdm(total=len(folders), smoothing=0, bar_format=_BAR, disable=not sys.stderr.isatty())

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def report(self, folder: RunFolder, event: str) -> None:
        """Take note of a run that has started, has ended or is another process's."""
        if event == "started":
            self._bar.set_postfix_str(f"log: {folder.path / 'log.txt'}")
            return
        self._num_ended += event != "elsewhere"
        result = folder.result()
        value = f": {result['value']:.6g}" if result else f", see {folder.path / 'log.txt'}"
        of_all = f"{self._num_ended} of {len(self._folders)}"
        tqdm.write(f"{time.strftime('%H:%M:%S')} {of_all}: {folder.run.name} {event}{value}", file=sys.stdout)
        sys.stdout.flush()

    def look(self) -> None:
        """Move the bar, every few seconds; to be called often."""
        if self._bar.disable or time.monotonic() < self._looked + _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        self._bar.update(max(0.0, sum(map(share_done, self._folders)) - self._bar.n))


def share_done(folder: RunFolder) -> float:
    """How much of a run is done, 0 to 1: its updates, by its log; 1 for one that has ended."""
    if folder.state() in (DONE, FAILED):
        return 1.0
    arguments = folder.run.arguments
    if "--max-update" not in arguments[:-1]:
        return 0.0
    total = int(arguments[arguments.index("--max-update") + 1])
    updates = [record.values.get("num_updates", 0.0) for line in _tail(folder) if (record := parse_line(line))]
    return min(1.0, updates[-1] / total) if updates and total > 0 else 0.0


def _tail(folder: RunFolder) -> list[str]:
    try:
        with open(folder.path / "log.txt", "rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            return log.read().decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
