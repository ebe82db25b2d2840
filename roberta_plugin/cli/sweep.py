"""`roberta sweep`: many trainings, here or as a SLURM job array, and a report of their results."""

from __future__ import annotations

import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_plugin.cli.command import RESUMES, command
from roberta_plugin.experiments.settings import SweepSettings

if TYPE_CHECKING:
    from roberta_plugin.experiments.sweeps.grid import Grid

FAILURES = 1


@command(SweepSettings, if_interrupted=RESUMES)
def sweep(settings: SweepSettings) -> int:
    """Trains every hyperparameter setting of a grid file with every seed, and writes report.md and report.json;
    slurm/README.md has the format, slurm/ has examples. Run the same command again: it resumes where it stopped, leaves
    finished and running runs alone, and repeats failed ones.
    """
    from roberta_plugin.experiments.sweeps import sweep as sweeps
    from roberta_plugin.experiments.sweeps.grid import read_grid

    if settings.dry_run:
        grid = read_grid(settings.grid, slurm=settings.slurm)
        sweeps.check_options(grid)
        check_folders(grid, settings.output_dir.resolve())
        print(table_of_runs(grid))
        for note in grid.notes:
            print(f"# note: {note}")
        if settings.slurm is not None:
            show_job(grid, settings)
        show_commands(grid, settings.output_dir.resolve())
        return 0
    report = sweeps.sweep(settings, say=partial(print, flush=True))
    print(sweeps.summarize(report))
    return FAILURES if report.failures else 0


def show_job(grid: Grid, settings: SweepSettings) -> None:
    """Print the batch script of the array; what a submission would refuse is refused here, too.

    The partition is checked where there is a SLURM to ask.
    """
    from roberta_plugin.launch.resources import check_slurm
    from roberta_plugin.launch.slurm_commands import check_partition
    from roberta_plugin.launch.submission import array_script

    check_slurm(grid.slurm)
    assert grid.slurm is not None
    if shutil.which("sinfo"):
        check_partition(grid.slurm.partition, nodes=grid.slurm.nodes)
    root = settings.output_dir.resolve()
    script = array_script(
        num_runs=len(grid.runs),
        root=root,
        name=settings.job_name or root.name,
        num_parallel=settings.parallel,
        resources=grid.slurm,
    )
    print(f"\n# the script of the job array\n{script.rstrip()}\n")


def table_of_runs(grid: Grid) -> str:
    """The runs by what distinguishes them: their settings and seeds."""
    from roberta_plugin.reports import markdown_table

    head = ["run", *grid.axes, "seed"]
    rows = [[run.name, *(run.settings[axis] for axis in grid.axes), run.seed] for run in grid.runs]
    cells, seeds = len(grid.cells), len(grid.runs) // len(grid.cells)
    return f"{markdown_table(head, rows)}\n# {len(rows)} runs: {cells} settings x {seeds} seeds"


def check_folders(grid: Grid, root: Path) -> None:
    """Raise a ValueError if a folder holds a run with other settings."""
    from roberta_plugin.experiments.sweeps.grid import run_folders

    for folder in run_folders(grid, root):
        folder.check()


def show_commands(grid: Grid, root: Path) -> None:
    """Print every run's command."""
    from roberta_plugin.experiments.sweeps.grid import run_folders
    from roberta_plugin.launch.process import train_program, variables_shown

    print("\n# the command of each run")
    for folder in run_folders(grid, root):
        arguments = folder.run.arguments_in(folder.path, grid.metric)
        variables = variables_shown(folder.tracker_variables(), arguments)
        print(f"# {folder.run.name}\n{variables}{shlex.join([*train_program(), *arguments])}")
