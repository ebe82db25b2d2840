"""`roberta sweep`: all runs of a grid file, here or as a SLURM job array, and a report of their results."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.interrupts import terminated_like_interrupted

if TYPE_CHECKING:
    from roberta_plugin.experiments.sweeps.grid import Grid

FAILURES = 1


def add_parser(subparsers: Any) -> None:
    """Add `roberta sweep` and its options."""
    parser = subparsers.add_parser(
        "sweep",
        help="run a grid of trainings, and compare them",
        description="Trains every cell of a grid file with every seed, and writes report.md, report.json and "
        "report.png; slurm/README.md has the format, slurm/ has examples. Run the same command again: it resumes "
        "where it stopped, leaves alone what is done or running, and repeats what failed.",
    )
    parser.add_argument("grid", type=Path, help="grid file (YAML)")
    parser.add_argument("--output-dir", type=Path, required=True, help="where the runs and the report are written")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--retries", type=int, default=0, help="how often to restart a failed run at once (0)")
    parser.add_argument(
        "--gpus-per-run", type=int, default=0, help="GPUs of its own for each run here (0: every run sees all GPUs)"
    )
    parser.add_argument(
        "--slurm",
        nargs="*",
        metavar="NAME=VALUE",
        help="submit the runs as a job array instead of training here. Settings given here win over the grid file's "
        "section slurm and have the same names: time=8:00:00 partition=gpu gpus_per_node=8 sbatch.OPTION=VALUE "
        "env.NAME",
    )
    parser.add_argument("--wait", action="store_true", help="with --slurm: wait until the runs have left the queue")
    parser.add_argument(
        "--renew-code",
        action="store_true",
        help="from now on use the present code of this plugin, not the copy that the first start has made",
    )
    parser.add_argument("--ensemble", type=int, default=5, help="members of an ensemble to list (5)")
    parser.add_argument(
        "--keep",
        choices=("best", "weights", "all"),
        default="all",
        help="checkpoints of finished runs to keep: `best`, the weights of each cell's best run; `weights`, those of "
        "every run; `all` (default): the best and the last with the optimizer's state",
    )
    parser.add_argument("--report-only", action="store_true", help="write the report of what is there, train nothing")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the options and data of all runs, show their commands, write nothing",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train what is left of the sweep and show the report; 1 if a run has failed."""
    from roberta_plugin.experiments.sweeps.grid import read_grid
    from roberta_plugin.experiments.sweeps.sweep import SweepSettings, check_options, summary_of, sweep
    from roberta_plugin.training.settings import parse_pairs

    values = {name: value for name, value in vars(args).items() if name in SweepSettings.__dataclass_fields__}
    if args.slurm is not None:
        values["slurm"] = parse_pairs(args.slurm, option="--slurm")
    settings = SweepSettings(**values)
    if args.dry_run:
        grid = read_grid(settings.grid, slurm=settings.slurm)
        check_options(grid)
        return show_commands(grid, settings.output_dir.resolve())
    with terminated_like_interrupted():  # else SIGTERM would leave the trainings running
        report = sweep(settings, say=partial(print, flush=True))
    print(summary_of(report))
    return FAILURES if report.failures else 0


def show_commands(grid: Grid, root: Path) -> int:
    """Print every run's command."""
    from roberta_plugin.training.process import train_program

    for item in grid.runs:
        print(f"# {item.name}\n{shlex.join([*train_program(), *item.arguments_in(root / item.name, grid.metric)])}")
    print(f"# {len(grid.runs)} runs: {len(grid.cells)} cells x {len(grid.runs) // len(grid.cells)} seeds")
    return 0
