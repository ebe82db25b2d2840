"""`roberta sweep`: all runs of a grid file, here or as a SLURM job array, and a report of their results."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.experiments.settings import SweepSettings
from roberta_plugin.settings import add_options, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.experiments.sweeps.grid import Grid

FAILURES = 1


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta sweep`; its options are the fields of `SweepSettings`."""
    parser.description = (
        "Trains every hyperparameter setting of a grid file with every seed, and writes report.md and report.json; "
        "slurm/README.md has the format, slurm/ has examples. Run the same command again: it resumes where it stopped, "
        "leaves finished and running runs alone, and repeats failed ones."
    )
    add_options(parser, SweepSettings)


def run(args: argparse.Namespace) -> int:
    """Train what is left of the sweep and show the report; 1 if a run has failed."""
    from roberta_plugin.experiments.sweeps.grid import read_grid
    from roberta_plugin.experiments.sweeps.sweep import check_options, summary_of, sweep

    settings = from_arguments(SweepSettings, vars(args))
    if settings.dry_run:
        grid = read_grid(settings.grid, slurm=settings.slurm)
        check_options(grid)
        return show_commands(grid, settings.output_dir.resolve())
    with terminated_like_interrupted():  # else SIGTERM would leave the trainings running
        report = sweep(settings, say=partial(print, flush=True))
    print(summary_of(report))
    return FAILURES if report.failures else 0


def show_commands(grid: Grid, root: Path) -> int:
    """Print every run's command."""
    from roberta_plugin.experiments.sweeps.grid import run_folders
    from roberta_plugin.launch.process import train_program
    from roberta_plugin.launch.trackers import shown

    for folder in run_folders(grid, root):
        arguments = folder.run.arguments_in(folder.path, grid.metric)
        variables = shown(folder.tracker_variables(), arguments)
        print(f"# {folder.run.name}\n{variables}{shlex.join([*train_program(), *arguments])}")
    print(f"# {len(grid.runs)} runs: {len(grid.cells)} settings x {len(grid.runs) // len(grid.cells)} seeds")
    return 0
