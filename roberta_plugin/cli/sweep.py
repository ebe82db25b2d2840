"""`roberta sweep`: all runs of a grid file, here or as a SLURM job array, and a report of what they found."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roberta_plugin.cluster.grid import Grid
    from roberta_plugin.cluster.sweep_run import RunFolder

_SLURM_POLL_S = 10.0
FAILURES = 1


def add_parser(subparsers: Any) -> None:
    """Add `roberta sweep` and its options."""
    parser = subparsers.add_parser(
        "sweep",
        help="run a grid of trainings, and compare them",
        description="Trains every cell of a grid file (`roberta_plugin/cluster/grid.py` has the format, slurm/ has "
        "examples) with every seed, and writes report.md, report.json and report.png. Run the same command again: it "
        "goes on where it stopped, leaves alone what is done or running, and tries again what failed.",
    )
    parser.add_argument("grid", type=Path, help="grid file (YAML)")
    parser.add_argument("--folder", type=Path, required=True, help="where the runs and the report are written")
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
    from roberta_plugin.cluster.grid import read_grid

    check_arguments(args)
    if args.dry_run:
        return show_commands(read_grid(args.grid), args.folder.resolve())
    return FAILURES if do(args)["failures"] else 0


def do(args: argparse.Namespace) -> dict[str, Any]:
    """Do what is left of the sweep, report, and return what report.json holds."""
    from roberta_plugin.cluster.grid import read_grid
    from roberta_plugin.cluster.sweep import check_options, prepare, to_do, use_snapshot
    from roberta_plugin.cluster.sweep_keep import keep_best, keep_weights
    from roberta_plugin.cluster.sweep_report import write_report

    check_arguments(args)
    grid, root = read_grid(args.grid), args.folder.resolve()
    if not args.report_only:
        check_options(grid)
    folders = prepare(grid, root)
    if not args.report_only:
        stop_orphans(folders)
    chosen = [] if args.report_only else to_do(folders, root=root)
    if chosen and use_snapshot(chosen, root=root, renew=args.renew_code):
        print(f"the runs use the code in {root / 'snapshots'}, which is not the present one: see --renew-code")
    try:
        if chosen and args.slurm:
            do_on_slurm(chosen, grid, root=root, args=args)
        elif chosen:
            do_here(chosen, args=args, num_runs=len(folders))
    finally:
        if args.keep != "all":
            keep_weights(folders)
        if args.keep == "best":
            keep_best(folders, grid.metric)
        facts = write_report(grid, folders, root=root, ensemble_size=args.ensemble)
    show(facts, root)
    return facts


def stop_orphans(folders: Sequence[RunFolder]) -> None:
    """End what a sweep that was killed has left behind on this machine: it goes on under our eyes."""
    from roberta_plugin.cluster.sweep_orphans import stop_orphan

    for folder in folders:
        if stop_orphan(folder.path / "lock"):
            print(f"{folder.run.name} was still running, without the sweep that had started it: stopped, to be resumed")


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
    from roberta_plugin.train_program import train_program

    for item in grid.runs:
        print(f"# {item.name}\n{shlex.join([*train_program(), *item.words_in(root / item.name, grid.metric)])}")
    print(f"# {len(grid.runs)} runs: {len(grid.cells)} cells x {len(grid.runs) // len(grid.cells)} seeds")
    return 0


def do_here(folders: Sequence[RunFolder], *, args: argparse.Namespace, num_runs: int) -> None:
    """Do the runs on this machine, and show how far they are."""
    from roberta_plugin.cluster.sweep_keep import keep_weights
    from roberta_plugin.cluster.sweep_local import run_locally
    from roberta_plugin.cluster.sweep_progress import SweepProgress

    print(
        f"{len(folders)} of {num_runs} runs to do, {args.parallel} at a time; logs: {args.folder}/CELL/seed-N/log.txt",
        flush=True,
    )
    with SweepProgress(folders) as progress:

        def report(folder: RunFolder, event: str) -> None:
            if args.keep != "all":
                keep_weights([folder])
            progress.report(folder, event)

        run_locally(
            folders,
            num_parallel=args.parallel,
            gpus_per_run=args.gpus_per_run,
            retries=args.retries,
            report=report,
            look=progress.look,
        )


def grid_value(value: float) -> str:
    """A metric as it is shown."""
    return f"{value:.6g}"


def do_on_slurm(folders: Sequence[RunFolder], grid: Grid, *, root: Path, args: argparse.Namespace) -> None:
    """Submit the runs as a job array, and wait for them where asked."""
    from roberta_plugin.cluster.sweep_keep import keep_weights
    from roberta_plugin.cluster.sweep_progress import SweepProgress
    from roberta_plugin.cluster.sweep_slurm import queued_runs, submit

    code = folders[0].code
    assert code is not None
    jobs = submit(folders, root=root, code=code, num_parallel=args.parallel, settings=grid.slurm)
    array = next(iter(jobs.values())).split("_")[0]
    print(f"{len(jobs)} runs submitted as job {array}, at most {args.parallel} at a time", flush=True)
    if not args.wait:
        return
    with SweepProgress(folders) as progress:
        while queued_runs(root):
            time.sleep(_SLURM_POLL_S)
            progress.look()
            if args.keep != "all":
                keep_weights(folders)


def show(facts: dict[str, Any], root: Path) -> None:
    """Print the outcome in a few lines."""
    states = ", ".join(f"{count} {state}" for state, count in facts["states"].items())
    print(f"{facts['num_runs']} runs: {states}")
    for name, failure in facts["failures"].items():
        print(f"failed: {name}: {failure['reason']}; see {root / name / 'log.txt'}")
    if facts["best_cell"]:
        best = next(cell for cell in facts["cells"] if cell["name"] == facts["best_cell"])
        print(
            f"best cell: {best['name']}, median {grid_value(best['median'])} ({grid_value(best['smallest'])} to "
            f"{grid_value(best['largest'])}, {len(best['values'])} of {best['num_runs']} seeds)"
        )
    print(f"report: {root / 'report.md'}")
