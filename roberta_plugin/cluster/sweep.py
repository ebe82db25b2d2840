"""A sweep: which runs of a grid file are still to be done, and doing them here or on a cluster.

    grid file --grid.py--> runs --sweep_run.py--> folders --sweep_local.py | sweep_slurm.py--> result.json
                                                          --sweep_report.py--> report.md, report.json, report.png

The folders are the whole memory: the same command goes on where a sweep was stopped, leaves alone what is done or
running, and tries again what failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.cluster import train_arguments
from roberta_plugin.cluster.checks import check_data, check_splits
from roberta_plugin.cluster.grid import Grid
from roberta_plugin.cluster.options_file import locate
from roberta_plugin.cluster.snapshot import PACKAGE, sweep_snapshot, user_dir_of
from roberta_plugin.cluster.sweep_run import DONE, RUNNING, RunFolder
from roberta_plugin.cluster.sweep_slurm import queued_runs
from roberta_plugin.data.atomic_files import atomic_write


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
