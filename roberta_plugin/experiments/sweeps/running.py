"""The runs of a sweep in progress: trained on this machine, several at a time, or waited for in SLURM's queue.

On a terminal there is a bar for each run that trains and one for all, else a line for each run that ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tqdm import tqdm

from roberta_plugin.launch.log import Record, parse_line, show_on
from roberta_plugin.launch.run_folder import (
    ARRAY_LOGS,
    DONE,
    FAILED,
    POLL_S,
    RUNNING,
    WAITING,
    Attempt,
    RunFolder,
    keep_weights,
    known_jobs,
    queued_runs,
)
from roberta_plugin.machine import num_cores
from roberta_plugin.progress import terminal_size

ASK_EVERY_S = 10.0  # SLURM
PATIENCE_S = 3600.0  # a controller may be restarted while its jobs run
SAY_EVERY_S = 600.0
_LOOK_EVERY_S = 1.0
_MOST_BARS = 8  # of runs, which must fit on the screen
_TAIL_BYTES = 2**15  # of a log, in which its last records are looked for
_BAR = "{l_bar}{bar}| {n:.1f} of {total} runs, {elapsed} so far, {remaining} left{postfix}"
_RUN = "{l_bar}{bar}| {n:.0f}/{total:.0f} updates, {remaining} left{postfix}"


def run_locally(
    folders: Sequence[RunFolder],
    *,
    num_parallel: int,
    gpus_per_run: int = 0,
    retries: int = 0,
    report: Callable[[RunFolder, str], None],
    look: Callable[[], None] = lambda: None,
) -> None:
    """Train the runs, at most `num_parallel` at a time; they are stopped if this is interrupted.

    `report` is called with each run that starts ("started"), ends (its state) or is another process's ("elsewhere"),
    and `look` several times a second.
    """
    slots = environments(num_parallel, gpus_per_run=gpus_per_run)
    waiting = [(folder, retries) for folder in folders]
    running: dict[int, tuple[Attempt, int]] = {}  # slot -> attempt and the retries it has left
    try:
        while waiting or running:
            for slot in set(range(num_parallel)) - set(running):
                while waiting and slot not in running:
                    folder, left = waiting.pop(0)
                    attempt = folder.start(slots[slot])
                    if attempt:
                        running[slot] = (attempt, left)
                    report(folder, "started" if attempt else "elsewhere")
            for slot, (attempt, left) in list(running.items()):
                state = attempt.poll()
                if state is None:
                    continue
                del running[slot]
                report(attempt.folder, state)
                if state == FAILED and left > 0:
                    waiting.append((attempt.folder, left - 1))
            look()
            time.sleep(POLL_S if running else 0)
    finally:
        if running:  # together, for each may be saving; and to the end, though a second Ctrl-C comes
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(lambda pair: pair[0].stop(), running.values()))


def environments(num_parallel: int, *, gpus_per_run: int) -> list[dict[str, str]]:
    """Variables that give each of the parallel runs its share of the machine."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, num_cores() // num_parallel))
    shares: list[dict[str, str]] = [{"OMP_NUM_THREADS": threads} for _ in range(num_parallel)]
    if gpus_per_run:
        gpus = visible_gpus()
        if len(gpus) < num_parallel * gpus_per_run:
            raise ValueError(
                f"--parallel {num_parallel} with --gpus-per-run {gpus_per_run} needs {num_parallel * gpus_per_run} "
                f"GPUs, and {len(gpus)} are visible. Lower one of the two."
            )
        for slot, share in enumerate(shares):
            share["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[slot * gpus_per_run : (slot + 1) * gpus_per_run])
    return shares


def visible_gpus() -> list[str]:
    """Names of the GPUs that a process started now would see, without starting CUDA."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return [str(number) for number in range(len(nodes))]


def wait_for_queue(
    folders: Sequence[RunFolder],
    *,
    root: Path,
    keep: str,
    say: Callable[[str], None],
    look: Callable[[], None],
) -> None:
    """Wait until the queue holds no run any more; those that left it without training have failed.

    Unless `keep` is `all`, runs that are done lose what is needed to resume. `look` is called after each poll.

    Raises:
        ChildProcessError: if SLURM has not answered for an hour.
    """
    while _may_be_queued(root, say):
        time.sleep(ASK_EVERY_S)
        look()
        if keep != "all":
            keep_weights(folders)
    jobs = known_jobs(root)
    for folder in folders:
        job = jobs.get(folder.run.name)
        if job is not None and folder.state() == WAITING:
            log = root / ARRAY_LOGS / f"{job}_0_log.err"
            folder.fail(f"job {job} has ended, and the run is not done; its own log: {log}")


def _may_be_queued(root: Path, say: Callable[[str], None]) -> bool:
    """Whether runs are in SLURM's queue; retries for an hour if squeue fails, as the jobs themselves do."""
    begun = time.monotonic()
    say_at = begun
    while True:
        try:
            answer = bool(queued_runs(root))
        except ChildProcessError as error:
            now = time.monotonic()
            if now > begun + PATIENCE_S:
                raise
            if now >= say_at:
                say_at = now + SAY_EVERY_S
                say(
                    f"{time.strftime('%H:%M:%S')} {error}; the jobs continue, and SLURM is asked again every "
                    f"{ASK_EVERY_S:.0f} s for {(begun + PATIENCE_S - now) / 60:.0f} minutes"
                )
            time.sleep(ASK_EVERY_S)
            continue
        if say_at > begun:
            say(f"{time.strftime('%H:%M:%S')} SLURM answers again")
        return answer


class SweepProgress:
    """A context manager that shows the progress of runs."""

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self._folders = folders
        self._num_ended = 0
        self._looked = time.monotonic()
        self._size = terminal_size()
        self._bar_of: dict[str, Any] = {}  # by the run's name
        self._bar = tqdm(
            total=len(folders),
            desc="all",
            bar_format=_BAR,
            smoothing=0,
            disable=not sys.stderr.isatty(),
            **self._size,
        )

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bar in [*self._bar_of.values(), self._bar]:
            bar.close()

    def report(self, folder: RunFolder, event: str) -> None:
        """Note a run that has started, has ended or is another process's."""
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
                total = _num_updates(folder)
                self._bar_of[name] = tqdm(total=total, desc=name, bar_format=_RUN, leave=False, **self._size)
            last = {record.kind: record for record in _records(folder)}
            for record in sorted(last.values(), key=lambda record: record.values["num_updates"]):
                show_on(self._bar_of[name], record)
            self._bar_of[name].refresh()
        self._bar.update(max(0.0, sum(map(share_done, self._folders)) - self._bar.n))
        self._bar.refresh()


def share_done(folder: RunFolder) -> float:
    """The share of a run that is done, 0 to 1: its updates, by its log; 1 for one that has ended."""
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
    records = map(parse_line, folder.log_lines(most=_TAIL_BYTES))
    return [record for record in records if record and "num_updates" in record.values]
