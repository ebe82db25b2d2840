"""A sweep: train the runs of a grid file that are still to be done, here or on a cluster, and report.

    grid file --grid.py--> runs --run_folder.py--> folders --running.py--> result.json
                                              --report.py--> report.md, report.json

The folders are the whole state: the same call resumes a sweep that was stopped, leaves alone what is done or running,
and repeats what failed. From a notebook:

    from roberta_plugin.experiments.sweeps.sweep import SweepSettings, sweep

    report = sweep(SweepSettings(grid=Path("slurm/sweep_demo.yaml"), output_dir=Path("runs/sweep"), parallel=2))
    report.states             # {"done": 9}
    report.best_cell          # {"name": "lr-3e-3", "median": 101.2, "values": {"1": 101.2, ...}, ...}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.settings import SweepSettings as SweepSettings
from roberta_plugin.experiments.sweeps.grid import Grid, read_grid, run_folders
from roberta_plugin.experiments.sweeps.report import write_report
from roberta_plugin.experiments.sweeps.running import SweepProgress, run_locally, wait_for_queue
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import PACKAGE, user_dir_of
from roberta_plugin.launch.options_file import locate
from roberta_plugin.launch.process import stop_orphan
from roberta_plugin.launch.resources import check_slurm, redacted_copy
from roberta_plugin.launch.run_folder import DONE, JOBS, LOCK, RUNNING, RunFolder, keep_best, keep_weights, queued_runs
from roberta_plugin.launch.submission import submit_runs, sweep_snapshot, write_for_owner
from roberta_plugin.locks import one_writer


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
            work.stop_orphans()
            jobs = work.train()
    finally:
        if settings.keep != "all":
            keep_weights(work.folders)
        if settings.keep == "best":
            keep_best(work.folders, grid.metric)
        facts = write_report(grid, work.folders, root=root, ensemble_size=settings.ensemble)
    return SweepReport(output_dir=root, facts=facts, jobs=jobs)


def summarize(report: SweepReport) -> str:
    """The outcome in a few lines."""
    states = ", ".join(f"{count} {state}" for state, count in report.states.items())
    num_runs = report.facts["num_runs"]
    lines = [f"{num_runs} run{'s' * (num_runs != 1)}: {states}"]
    for name, failure in report.failures.items():
        lines.append(f"failed: {name}: {failure['reason']}; see {report.output_dir / name / 'log.txt'}")
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
        """What squeue and trackers call the sweep."""
        return self.settings.job_name or self.root.name

    def stop_orphans(self) -> None:
        """Stop the trainings that a killed sweep has left running on this machine; they are resumed."""
        for folder in self.folders:
            if stop_orphan(folder.path / LOCK):
                self.say(
                    f"{folder.run.name} was still running without the sweep that started it: stopped, to be resumed"
                )

    def train(self) -> dict[str, str]:
        """Train the runs that are to be done, here or on SLURM; return the jobs that were submitted."""
        settings, jobs = self.settings, dict[str, str]()
        with one_writer(self.root / JOBS):  # of two sweeps at the same time, the second finds the first one's jobs
            queued = queued_runs(self.root)
            chosen = to_do(self.folders, queued)
            code = (settings.code or self.root).resolve()
            if chosen and use_snapshot(chosen, root=code, renew=settings.renew_code):
                self.say(
                    f"the runs use the code in {chosen[0].code}, which differs from the present one: see --renew-code"
                )
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
            parsed = train_arguments.parse(run.arguments_in(Path(run.name), grid.metric))
            train_arguments.check_options(parsed)
        except ValueError as error:
            where = f"{locate(grid.path, str(error))}, " if is_written else ""
            raise ValueError(f"{where}setting {run.cell}: {error}") from error
        train_arguments.check_data(parsed)
        validated = [] if parsed.disable_validation else parsed.valid_subset.split(",")
        if grid.metric.log and grid.metric.log not in (*validated, "train", "train_inner"):
            raise ValueError(
                f"{grid.path}: metric, log: {grid.metric.log!r} is no split that setting {run.cell} is validated on "
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
    for folder in folders:
        folder.prepare()
    env = grid.slurm.env if grid.slurm else ()
    write_for_owner(root / "grid.yaml", redacted_copy(grid.path, env))
    return folders


def to_do(folders: Sequence[RunFolder], queued: Collection[str]) -> list[RunFolder]:
    """The runs that are neither done nor running nor among those `queued` by SLURM."""
    return [folder for folder in folders if folder.run.name not in queued and folder.state() not in (DONE, RUNNING)]


def use_snapshot(folders: Sequence[RunFolder], *, root: Path, renew: bool) -> bool:
    """Let the runs use the sweep's snapshot, made now if there is none; return whether the present code differs."""
    paths = [user_dir_of(folder.run.arguments) for folder in folders]
    user_dirs = {path for path in paths if path is not None and path != PACKAGE}
    code, is_outdated = sweep_snapshot(root, user_dirs=sorted(user_dirs), renew=renew)
    for folder in folders:
        folder.code = code
    return is_outdated
