"""`roberta sweep`: all runs of a grid file, here or as a SLURM job array, and a report of what they found."""

from __future__ import annotations

import argparse
import functools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roberta_plugin.experiments.grid import Grid

FAILURES = 1


def add_parser(subparsers: Any) -> None:
    """Add `roberta sweep` and its options."""
    parser = subparsers.add_parser(
        "sweep",
        help="run a grid of trainings, and compare them",
        description="Trains every cell of a grid file (`roberta_plugin/experiments/grid.py` has the format, slurm/ has "
        "examples) with every seed, and writes report.md, report.json and report.png. Run the same command again: it "
        "goes on where it stopped, leaves alone what is done or running, and tries again what failed.",
    )
    parser.add_argument("grid", type=Path, help="grid file (YAML)")
    parser.add_argument("--output-dir", type=Path, required=True, help="where the runs and the report are written")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--retries", type=int, default=0, help="start a failed run again so often at once (0)")
    parser.add_argument(
        "--gpus-per-run", type=int, default=0, help="GPUs of its own for each run here (0: all see all)"
    )
    parser.add_argument(
        "--slurm", action="store_true", help="submit the runs as a job array instead of doing them here"
    )
    parser.add_argument("--wait", action="store_true", help="with --slurm: stay until the runs have left the queue")
    parser.add_argument(
        "--renew-code",
        action="store_true",
        help="from now on run the present code of this plugin, and not the copy that the first start has made",
    )
    parser.add_argument("--ensemble", type=int, default=5, help="members of an ensemble to list (5)")
    parser.add_argument(
        "--keep",
        choices=("best", "weights", "all"),
        default="all",
        help="checkpoints of finished runs that stay: `best`, the weights of each cell's best run; `weights`, those of "
        "every run; `all` (default): the best and the last with the optimizer's state",
    )
    parser.add_argument("--report-only", action="store_true", help="write the report of what is there, train nothing")
    parser.add_argument("--dry-run", action="store_true", help="show the runs and their commands, write nothing")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what is left of the sweep, then report; 1 if a run has failed."""
    from roberta_plugin.experiments.grid import read_grid

    check_arguments(args)
    if args.dry_run:
        return show_commands(read_grid(args.grid), args.output_dir.resolve())
    return FAILURES if do(args)["failures"] else 0


def do(args: argparse.Namespace) -> dict[str, Any]:
    """Do what is left of the sweep, report, and return what report.json holds."""
    from roberta_plugin.experiments import sweep

    check_arguments(args)
    return sweep.run(
        args.grid,
        output_dir=args.output_dir,
        num_parallel=args.parallel,
        retries=args.retries,
        gpus_per_run=args.gpus_per_run,
        slurm=args.slurm,
        wait=args.wait,
        keep=args.keep,
        ensemble_size=args.ensemble,
        report_only=args.report_only,
        renew_code=args.renew_code,
        say=functools.partial(print, flush=True),
    )


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse numbers that mean nothing."""
    smallest = {"parallel": 1, "retries": 0, "gpus_per_run": 0, "ensemble": 0}
    for name, least in smallest.items():
        if getattr(args, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} must be {least} or more, got {getattr(args, name)}.")
    if args.wait and not args.slurm:
        raise ValueError("--wait goes with --slurm: runs on this machine are waited for anyway.")
    if args.slurm and (args.gpus_per_run or args.retries):
        raise ValueError(
            "--gpus-per-run and --retries are for runs on this machine. With --slurm write gpus_per_node under `slurm` "
            "in the grid file, and run the command again to try again what failed."
        )


def show_commands(grid: Grid, root: Path) -> int:
    """Print every run's command."""
    from roberta_plugin.training.program import train_program

    for item in grid.runs:
        print(f"# {item.name}\n{shlex.join([*train_program(), *item.words_in(root / item.name, grid.metric)])}")
    print(f"# {len(grid.runs)} runs: {len(grid.cells)} cells x {len(grid.runs) // len(grid.cells)} seeds")
    return 0
