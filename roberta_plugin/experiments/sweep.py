"""A sweep: which runs of a grid file are still to be done, and doing them here or on a cluster.

    grid file --grid.py--> runs --sweep_run.py--> folders --sweep_local.py | sweep_slurm.py--> result.json
                                                          --sweep_report.py--> report.md, report.json, report.png

The folders are the whole memory: the same command goes on where a sweep was stopped, leaves alone what is done or
running, and tries again what failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.grid import Grid, read_grid
from roberta_plugin.experiments.sweep_keep import keep_best, keep_weights
from roberta_plugin.experiments.sweep_local import run_locally
from roberta_plugin.experiments.sweep_orphans import stop_orphan
from roberta_plugin.experiments.sweep_progress import SweepProgress
from roberta_plugin.experiments.sweep_report import write_report
from roberta_plugin.experiments.sweep_run import DONE, RUNNING, RunFolder
from roberta_plugin.experiments.sweep_slurm import queued_runs, submit
from roberta_plugin.files import atomic_write
from roberta_plugin.launch.checks import check_data, check_splits
from roberta_plugin.launch.snapshot import PACKAGE, sweep_snapshot, user_dir_of
from roberta_plugin.training import arguments as train_arguments
from roberta_plugin.training.options_file import locate

_SLURM_POLL_S = 10.0


def check_options(grid: Grid) -> None:
    """Let fairseq's own parser read every cell's options, and look for the data, before anything is started.

    Raises:
        ValueError: naming the cell, with fairseq's reason.
        FileNotFoundError: if a data folder is missing.
    """
    for run in {run.cell: run for run in grid.runs}.values():
        try:
            parsed = train_arguments.parse(run.words_in(Path(run.name), grid.metric))
        except ValueError as error:
            raise ValueError(f"{locate(grid.path, str(error))}, cell {run.cell}: {error}") from error
        check_data(train_arguments.data_folders(parsed))
        check_splits(parsed)


def prepare(grid: Grid, root: Path) -> list[RunFolder]:
    """Make the folders of all runs, in the order of the grid file, and keep a copy of it.

    Raises:
        ValueError: if a folder holds a run with other settings; no folder is made then.
    """
    folders = [RunFolder(root, run, grid.metric) for run in grid.runs]
    for folder in folders:
        folder.check()
    for folder in folders:
        folder.prepare()
    with atomic_write(root / "grid.yaml") as file:
        file.write(grid.path.read_bytes())
    return folders


def to_do(folders: Sequence[RunFolder], *, root: Path) -> list[RunFolder]:
    """The runs that are neither done nor running nor in SLURM's queue."""
    queued = queued_runs(root)
    return [folder for folder in folders if folder.run.name not in queued and folder.state() not in (DONE, RUNNING)]


def use_snapshot(folders: Sequence[RunFolder], *, root: Path, renew: bool) -> bool:
    """Let the runs use the code in the sweep's snapshot, made now if there is none; whether ours is another by now."""
    found = [user_dir_of(folder.run.words) for folder in folders]
    user_dirs = {path for path in found if path is not None and path != PACKAGE}
    code, is_outdated = sweep_snapshot(root, user_dirs=sorted(user_dirs), renew=renew)
    for folder in folders:
        folder.code = code
    return is_outdated


def run(
    grid_path: Path,
    *,
    output_dir: Path,
    num_parallel: int = 1,
    retries: int = 0,
    gpus_per_run: int = 0,
    slurm: bool = False,
    wait: bool = False,
    keep: str = "all",
    ensemble_size: int = 5,
    report_only: bool = False,
    renew_code: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Do what is left of a sweep, write the report, and return what report.json holds.

    The arguments are the options of `roberta sweep`; `say` is called with lines about the progress, such as `print`.
    """
    grid, root = read_grid(grid_path), output_dir.resolve()
    if not report_only:
        check_options(grid)
    folders = prepare(grid, root)
    if not report_only:
        stop_orphans(folders, say)
    chosen = [] if report_only else to_do(folders, root=root)
    if chosen and use_snapshot(chosen, root=root, renew=renew_code):
        say(f"the runs use the code in {root / 'snapshots'}, which is not the present one: see --renew-code")
    try:
        if chosen and slurm:
            do_on_slurm(chosen, grid, root=root, num_parallel=num_parallel, wait=wait, keep=keep, say=say)
        elif chosen:
            where = f"{output_dir}/CELL/seed-N/log.txt"
            say(f"{len(chosen)} of {len(folders)} runs to do, {num_parallel} at a time; logs: {where}")
            do_here(chosen, num_parallel=num_parallel, gpus_per_run=gpus_per_run, retries=retries, keep=keep)
    finally:
        if keep != "all":
            keep_weights(folders)
        if keep == "best":
            keep_best(folders, grid.metric)
        facts = write_report(grid, folders, root=root, ensemble_size=ensemble_size)
    show(facts, root, say)
    return facts


def stop_orphans(folders: Sequence[RunFolder], say: Callable[[str], None]) -> None:
    """End what a sweep that was killed has left behind on this machine: it goes on under our eyes."""
    for folder in folders:
        if stop_orphan(folder.path / "lock"):
            say(f"{folder.run.name} was still running, without the sweep that had started it: stopped, to be resumed")


def do_here(folders: Sequence[RunFolder], *, num_parallel: int, gpus_per_run: int, retries: int, keep: str) -> None:
    """Do the runs on this machine, and show how far they are."""
    with SweepProgress(folders) as progress:

        def report(folder: RunFolder, event: str) -> None:
            if keep != "all":
                keep_weights([folder])
            progress.report(folder, event)

        run_locally(
            folders,
            num_parallel=num_parallel,
            gpus_per_run=gpus_per_run,
            retries=retries,
            report=report,
            look=progress.look,
        )


def do_on_slurm(
    folders: Sequence[RunFolder],
    grid: Grid,
    *,
    root: Path,
    num_parallel: int,
    wait: bool,
    keep: str,
    say: Callable[[str], None],
) -> None:
    """Submit the runs as a job array, and wait for them where asked."""
    code = folders[0].code
    assert code is not None
    jobs = submit(folders, root=root, code=code, num_parallel=num_parallel, settings=grid.slurm)
    array = next(iter(jobs.values())).split("_")[0]
    say(f"{len(jobs)} runs submitted as job {array}, at most {num_parallel} at a time")
    if not wait:
        return
    with SweepProgress(folders) as progress:
        while queued_runs(root):
            time.sleep(_SLURM_POLL_S)
            progress.look()
            if keep != "all":
                keep_weights(folders)


def grid_value(value: float) -> str:
    """A metric as it is shown."""
    return f"{value:.6g}"


def show(facts: dict[str, Any], root: Path, say: Callable[[str], None]) -> None:
    """Say in a few lines what came out."""
    states = ", ".join(f"{count} {state}" for state, count in facts["states"].items())
    say(f"{facts['num_runs']} runs: {states}")
    for name, failure in facts["failures"].items():
        say(f"failed: {name}: {failure['reason']}; see {root / name / 'log.txt'}")
    if facts["best_cell"]:
        best = next(cell for cell in facts["cells"] if cell["name"] == facts["best_cell"])
        say(
            f"best cell: {best['name']}, median {grid_value(best['median'])} ({grid_value(best['smallest'])} to "
            f"{grid_value(best['largest'])}, {len(best['values'])} of {best['num_runs']} seeds)"
        )
    say(f"report: {root / 'report.md'}")
