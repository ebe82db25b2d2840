"""`roberta jobs`: state, update, loss, speed and time left of launched runs."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

from roberta_plugin.cluster import slurm_commands
from roberta_plugin.cluster.status import Status, find_runs, read_launch, read_status

COLUMNS = ("job", "state", "update", "loss", "tokens/s", "time left", "restarts", "run folder")
ENDED = ("finished", "stopped")


def add_parser(subparsers: Any) -> None:
    """Add `roberta jobs` and its options."""
    parser = subparsers.add_parser(
        "jobs",
        help="show how far the launched trainings are",
        description="Shows every run that `roberta launch` has submitted below the given folders: the state of its "
        "job, the updates done, the training loss as fairseq-train logs it, tokens a second on all GPUs together, and "
        "the time left to the last update at the present speed.",
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help="folders of runs (default: runs)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    missing = [folder for folder in args.folders if not folder.is_dir()]
    if missing:
        raise FileNotFoundError(f"There is no folder {missing[0]}: name the folder that holds your runs.")
    runs = [found for folder in args.folders for found in find_runs(folder)]
    if not runs:
        print(f"no launched run in {', '.join(map(str, args.folders))}")
        return 0
    rows = [COLUMNS, *(row_of(found) for found in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def row_of(run_dir: Path) -> tuple[str, ...]:
    """One run as the cells of COLUMNS."""
    launch, status = read_launch(run_dir), read_status(run_dir)
    job_id = None if launch is None else launch.job_id
    if status is not None and status.job_id != job_id:  # launched again since
        status = None
    progress = ("-",) * 5 if status is None else progress_of(status)
    return (job_id or "-", state_of(job_id, status), *progress, str(run_dir))


def state_of(job_id: str | None, status: Status | None) -> str:
    """SLURM's word for the job; once that is forgotten, or says less, what rank 0 wrote."""
    if status is not None and status.phase in ENDED:
        return status.phase
    state = slurm_commands.LOST if job_id is None else slurm_commands.job_state(job_id)
    return f"{state} (starting)" if state == "running" and status is not None and status.phase == "starting" else state


def progress_of(status: Status) -> tuple[str, ...]:
    """Update, loss, tokens a second, time left, restarts."""
    left = None if status.phase in ENDED else status.seconds_left
    return (
        f"{status.update:,}" + (f" of {status.max_update:,}" if status.max_update > 0 else ""),
        "-" if status.loss is None else f"{status.loss:.3f}",
        "-" if status.tokens_per_second is None else f"{status.tokens_per_second:,.0f}",
        "-" if left is None else str(datetime.timedelta(seconds=round(left))),
        str(status.attempt),
    )
