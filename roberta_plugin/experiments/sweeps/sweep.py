"""A sweep: train the runs of a grid file that are still to be done, here or on a cluster, and report.

    grid file --grid.py--> runs --run_folder.py--> folders, trained here or waited for in SLURM's queue --> result.json
                                              --report.py--> report.md, report.json

The folders are the whole state: the same call resumes a sweep that was stopped, leaves alone what is done or running,
and repeats what failed. On a terminal there is a bar for each run that trains and one for all, else a line for each run
that ends. From a notebook:

    from roberta_plugin.experiments.sweeps.sweep import SweepSettings, sweep

    report = sweep(SweepSettings(grid=Path("slurm/sweep_demo.yaml"), output_dir=Path("runs/sweep"), parallel=2))
    report.states             # {"done": 9}
    report.best_cell          # {"name": "lr-3e-3", "median": 101.2, "values": {"1": 101.2, ...}, ...}
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tqdm import tqdm

from roberta_plugin.experiments.settings import SweepSettings as SweepSettings
from roberta_plugin.experiments.sweeps.grid import Grid, read_grid, run_folders
from roberta_plugin.experiments.sweeps.report import write_report
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import PACKAGE, user_dir_of
from roberta_plugin.launch.log import Record, parse_line, show_on
from roberta_plugin.launch.options_file import place_of, read_file
from roberta_plugin.launch.process import stop_orphan
from roberta_plugin.launch.resources import check_slurm, redacted_copy
from roberta_plugin.launch.run_folder import (
    ARRAY_LOGS,
    JOBS,
    POLL_S,
    Attempt,
    RunFolder,
    check_choice,
    keep_best,
    keep_weights,
    known_jobs,
    queued_runs,
)
from roberta_plugin.launch.submission import submit_runs, sweep_snapshot, write_for_owner
from roberta_plugin.locks import one_writer
from roberta_plugin.machine import num_cores
from roberta_plugin.progress import terminal_size
from roberta_plugin.runs import DONE, FAILED, LOCK, RUNNING, WAITING

ASK_EVERY_S = 10.0  # SLURM
PATIENCE_S = 3600.0  # a controller may be restarted while its jobs run
_LOOK_EVERY_S = 1.0
_MOST_BARS = 8  # of runs, which must fit on the screen
_TAIL_BYTES = 2**15  # of a log, in which its last records are looked for
_BAR = "{l_bar}{bar}| {n:.1f} of {total} runs, {elapsed} so far, {remaining} left{postfix}"
_RUN = "{l_bar}{bar}| {n:.0f}/{total:.0f} updates, {remaining} left{postfix}"


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """The results of a sweep so far."""

    output_dir: Path
    facts: Mapping[str, Any]  # the content of report.json
    jobs: Mapping[str, str] = field(default_factory=dict)  # SLURM's job id by run, of this submission

    @property
    def states(self) -> Mapping[str, int]:
        """Number of runs by state: done, running, failed, waiting."""
        return self.facts["states"]  # type: ignore[no-any-return]

    @property
    def failures(self) -> Mapping[str, Mapping[str, Any]]:
        """Why runs have failed, by the run's name."""
        return self.facts["failures"]  # type: ignore[no-any-return]

    @property
    def best_cell(self) -> Mapping[str, Any] | None:
        """The cell with the best median: name, median, smallest, largest, values by seed; None before a run is done."""
        return next((cell for cell in self.facts["cells"] if cell["name"] == self.facts["best_cell"]), None)


def sweep(settings: SweepSettings, *, say: Callable[[str], None] = print) -> SweepReport:
    """Train what is left of a sweep, write the report, and return it.

    Raises:
        ValueError: for a grid file that cannot work, or an output folder with other runs.
    """
    grid = read_grid(settings.grid, slurm=settings.slurm)
    if not settings.report_only:
        check_options(grid)
        for note in grid.notes:
            say(f"note: {note}")
    return train_grid(grid, settings, say=say)


def train_grid(grid: Grid, settings: SweepSettings, *, say: Callable[[str], None] = print) -> SweepReport:
    """Do what is left of a grid whose options were checked (`check_options`), as `sweep`."""
    if settings.slurm is not None and not settings.report_only:
        check_slurm(grid.slurm)
    root = settings.output_dir.resolve()
    work = _Sweep(settings, grid, root=root, folders=prepare(grid, root), say=say)
    for folder in work.folders:
        folder.group = work.name
    jobs: dict[str, str] = {}
    try:
        if not settings.report_only:
            for folder in work.folders:  # which a killed sweep has left on this machine; they are resumed
                if stop_orphan(folder.path / LOCK):
                    say(
                        f"{folder.run.name} was still running without the sweep that started it: stopped, to be resumed"
                    )
            jobs = work.train()
    finally:
        if settings.keep != "all":
            keep_weights(work.folders)
        if settings.keep == "best":
            keep_best(work.folders, grid.metric)
        facts = write_report(grid, work.folders, root=root, ensemble_size=settings.ensemble, in_words=settings.in_words)
    return SweepReport(output_dir=root, facts=facts, jobs=jobs)


def summarize(report: SweepReport) -> str:
    """The outcome in a few lines."""
    states = ", ".join(f"{count} {state}" for state, count in report.states.items())
    num_runs = report.facts["num_runs"]
    lines = [f"{num_runs} run{'s' * (num_runs != 1)}: {states}"]
    for name, failure in report.failures.items():
        reason = str(failure["reason"]).rstrip(".")
        lines.append(f"failed: {name}: {reason}; see {report.output_dir / name / 'log.txt'}")
    best = report.best_cell
    if best is not None:
        lines.append(
            f"best setting: {best['name']}, median {best['median']:.6g} ({best['smallest']:.6g} to "
            f"{best['largest']:.6g}, {len(best['values'])} of {best['num_runs']} seeds)"
        )
    return "\n".join([*lines, f"report: {report.output_dir / 'report.md'}"])


@dataclass(frozen=True)
class _Sweep:
    """The runs of one call of `sweep`, and how they are done."""

    settings: SweepSettings
    grid: Grid
    _: KW_ONLY
    root: Path
    folders: Sequence[RunFolder]
    say: Callable[[str], None]

    @property
    def name(self) -> str:
        """The sweep's name in squeue and trackers."""
        return self.settings.job_name or self.root.name

    def train(self) -> dict[str, str]:
        """Train the runs that are to be done, here or on SLURM; return the jobs that were submitted."""
        settings, jobs = self.settings, dict[str, str]()
        with one_writer(self.root / JOBS):  # of two sweeps at the same time, the second finds the first one's jobs
            queued = queued_runs(self.root)
            chosen = to_do(self.folders, queued)
            code = (settings.code or self.root).resolve()
            if chosen and use_snapshot(chosen, root=code, renew=settings.renew_code):
                renewed = (
                    "see --renew-code" if settings.code is None else "delete it, while no run is active, to use that"
                )
                self.say(f"the runs use the code in {chosen[0].code}, which differs from the present one: {renewed}")
            if chosen and settings.slurm is not None:
                jobs = self.submit(chosen)
        if settings.slurm is None:
            if chosen:
                self.train_here(chosen)
            return {}
        awaited = [folder for folder in self.folders if folder in chosen or folder.run.name in queued]
        if settings.wait and awaited:  # also for what an earlier call has submitted
            if len(awaited) > len(chosen):
                earlier = len(awaited) - len(chosen)
                self.say(f"{earlier} runs of an earlier submission are in the queue: waiting for them")
            with SweepProgress(awaited) as progress:
                wait_for_queue(awaited, root=self.root, keep=settings.keep, say=self.say, look=progress.look)
        return jobs

    def train_here(self, chosen: Sequence[RunFolder]) -> None:
        """Train runs on this machine."""
        settings = self.settings
        self.say(
            f"{len(chosen)} of {len(self.folders)} runs to do, {settings.parallel} at a time; "
            f"logs: {settings.output_dir}/SETTING/seed-N/log.txt"
        )
        with SweepProgress(chosen) as progress:

            def report(folder: RunFolder, event: str) -> None:
                if settings.keep != "all":
                    keep_weights([folder])
                progress.report(folder, event)

            run_locally(
                chosen,
                num_parallel=settings.parallel,
                gpus_per_run=settings.gpus_per_run,
                retries=settings.retries,
                report=report,
                look=progress.look,
            )

    def submit(self, chosen: Sequence[RunFolder]) -> dict[str, str]:
        """Submit runs as a job array."""
        settings, code, resources = self.settings, chosen[0].code, self.grid.slurm
        assert code is not None
        assert resources is not None
        jobs = submit_runs(
            chosen,
            root=self.root,
            name=self.name,
            code=code,
            num_parallel=settings.parallel,
            resources=resources,
            after=settings.after,
        )
        array = next(iter(jobs.values())).split("_")[0]
        self.say(f"{len(jobs)} runs submitted as job {array}, at most {settings.parallel} at a time")
        if not settings.wait:
            self.say(
                f"`roberta jobs {self.root}` shows their progress. The same command writes the report when they have "
                "ended; with --wait it waits for that"
            )
        return jobs


def check_options(grid: Grid, *, is_written: bool = True) -> None:
    """Check every cell's options and data as fairseq-train would at its start, before anything is started.

    A file that is not written yet cannot be quoted.
    """
    for run in {run.cell: run for run in grid.runs}.values():
        try:
            parsed = train_arguments.checked(run.arguments_in(Path(run.name), grid.metric))
        except (ValueError, FileNotFoundError) as error:
            where = f"{place_of(str(error), read_file(grid.path))}, " if is_written else ""
            kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
            raise kind(f"{where}setting {run.cell}: {error}") from error
        validated = [] if parsed.disable_validation else parsed.valid_subset.split(",")
        if grid.metric.log and grid.metric.log not in (*validated, "train", "train_inner"):
            raise ValueError(
                f"{grid.path}: metric, log: {grid.metric.log!r} is not a split that setting {run.cell} is validated on "
                f"({', '.join(validated) or 'none'}): name one of them, or train, or give valid-subset."
            )


def prepare(grid: Grid, root: Path) -> list[RunFolder]:
    """Make the folders of all runs, in the order of the grid file, and keep a copy of it.

    Raises:
        ValueError: if a folder holds a run with other settings; no folder is made then.
    """
    folders = run_folders(grid, root)
    for folder in folders:
        folder.check()
    check_choice(folders)
    for folder in folders:
        folder.prepare()
    env = grid.slurm.env if grid.slurm else ()
    write_for_owner(root / "grid.yaml", redacted_copy(grid.path, env))
    return folders


def to_do(folders: Sequence[RunFolder], queued: Collection[str]) -> list[RunFolder]:
    """The runs that are neither done nor running nor among those `queued` by SLURM."""
    return [folder for folder in folders if folder.run.name not in queued and folder.state() not in (DONE, RUNNING)]


def use_snapshot(folders: Sequence[RunFolder], *, root: Path, renew: bool) -> bool:
    """Let the runs use the sweep's snapshot, made now if there is none. Return True if the present code differs."""
    paths = [user_dir_of(folder.run.arguments) for folder in folders]
    user_dirs = {path for path in paths if path is not None and path != PACKAGE}
    code, is_outdated = sweep_snapshot(root, user_dirs=sorted(user_dirs), renew=renew)
    for folder in folders:
        folder.code = code
    return is_outdated


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
    folders: Sequence[RunFolder], *, root: Path, keep: str, say: Callable[[str], None], look: Callable[[], None]
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
    """True if runs are in SLURM's queue; retries for an hour if squeue fails, as the jobs themselves do."""
    begun, is_silent = time.monotonic(), False
    while True:
        try:
            answer = bool(queued_runs(root))
        except ChildProcessError as error:
            if time.monotonic() > begun + PATIENCE_S:
                raise
            if not is_silent:
                every = f"asked again every {ASK_EVERY_S:.0f} s for {PATIENCE_S / 60:.0f} minutes"
                say(f"{time.strftime('%H:%M:%S')} {error}; the jobs continue, and SLURM is {every}")
            is_silent = True
            time.sleep(ASK_EVERY_S)
            continue
        if is_silent:
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
            total=len(folders), desc="all", bar_format=_BAR, smoothing=0, disable=not sys.stderr.isatty(), **self._size
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
        count = f"{self._num_ended} of {len(self._folders)}"
        tqdm.write(f"{time.strftime('%H:%M:%S')} {count}: {folder.run.name} {event}{value}", file=sys.stdout)
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
