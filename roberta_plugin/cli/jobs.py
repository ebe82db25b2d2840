"""`roberta jobs`: state, update, loss, speed and time left of launched runs, and why they wait or have failed."""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path
from typing import Any

from roberta_plugin.launch.restart.attempts import read_attempts
from roberta_plugin.launch.status import Launch, Status, find_runs, read_launch, read_status
from roberta_plugin.training import slurm_commands
from roberta_plugin.training.slurm_commands import Job

COLUMNS = ("job", "state", "update", "loss", "tokens/s", "time left", "last sign", "restarts", "run folder")
NO_ANSWER = "SLURM does not answer"
SILENT_S = 60.0  # rank 0 writes every 10 s, or after each update where that takes longer


def add_parser(subparsers: Any) -> None:
    """Add `roberta jobs` and its options."""
    parser = subparsers.add_parser(
        "jobs",
        help="show the progress of launched trainings",
        description="Shows every run that `roberta launch` has submitted below the given folders: the state of its "
        "job and why it waits, the updates done, the training loss as fairseq-train logs it, tokens a second on all "
        "GPUs together, the time left to the last update at the present speed, and when rank 0 last "
        "wrote. Below a run that has failed or started again: why, and the log to open.",
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
    known = ask_slurm([launch for found in runs if (launch := read_launch(found))])
    rows = [COLUMNS, *(row_of(found, known) for found in runs)]
    notes = ["", *(note_of(found, known) for found in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row, note in zip(rows, notes, strict=True):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if note:
            print(f"    {note}")
    return 0


def ask_slurm(launches: list[Launch]) -> dict[str, Job] | None:
    """What SLURM says about the jobs, by their ids; None if it cannot be asked."""
    try:
        return slurm_commands.jobs({launch.job_id for launch in launches if launch.job_id})
    except OSError:
        return None


def row_of(output_dir: Path, known: dict[str, Job] | None) -> tuple[str, ...]:
    """One run as the cells of COLUMNS."""
    launch, status = read_launch(output_dir), current_status(output_dir)
    job_id = "" if launch is None or launch.job_id is None else launch.job_id
    job = job_of(job_id, known)
    progress = ("-",) * 6 if status is None else progress_of(status, job)
    return (job_id or "-", state_of(job, status), *progress, str(output_dir))


def current_status(output_dir: Path) -> Status | None:
    """What rank 0 last wrote, unless the run was launched again since."""
    launch, status = read_launch(output_dir), read_status(output_dir)
    return status if launch is not None and status is not None and status.job_id == launch.job_id else None


def job_of(job_id: str, known: dict[str, Job] | None) -> Job:
    """What SLURM says about the job."""
    if known is None:
        return Job(slurm_commands.LOST, NO_ANSWER)
    return known.get(job_id, Job(slurm_commands.LOST, ""))


def state_of(job: Job, status: Status | None) -> str:
    """SLURM's word for the job and why it waits; what rank 0 wrote, once that says more."""
    if status is not None and status.phase == "finished":
        return "finished"
    if job.state == "running" and status is not None:
        silent = " (silent)" if is_silent(status) else ""
        return "running (starting)" if status.phase == "starting" else f"running{silent}"
    if job.state == "pending" or job.reason == NO_ANSWER:
        return f"{job.state} ({job.reason})" if job.reason not in ("", "None") else job.state
    if job.state in (slurm_commands.LOST, "completed") and status is not None and status.phase == "stopped":
        return "stopped"
    return job.state


def is_silent(status: Status) -> bool:
    """Whether rank 0 should have written since: the training hangs, validates or saves."""
    an_update = 0.0 if not status.updates_per_second else 1 / status.updates_per_second
    return age_of(status) > max(SILENT_S, 10 * an_update)


def age_of(status: Status) -> float:
    """Seconds since rank 0 last wrote its status."""
    return max(0.0, time.time() - status.time)


def progress_of(status: Status, job: Job) -> tuple[str, ...]:
    """Update, loss, tokens a second, time left, last sign, restarts; what is not so any more is left out."""
    trains = job.state == "running" and status.phase == "training" and not is_silent(status)
    left = status.seconds_left if trains else None
    speed = status.tokens_per_second if trains or status.phase == "finished" else None
    return (
        f"{status.update:,}" + (f" of {status.max_update:,}" if status.max_update > 0 else ""),
        "-" if status.loss is None else f"{status.loss:.3f}",
        "-" if speed is None else f"{speed:,.0f}",
        "-" if left is None else str(datetime.timedelta(seconds=round(left))),
        f"{datetime.timedelta(seconds=round(age_of(status)))} ago",
        str(status.attempt),
    )


def note_of(output_dir: Path, known: dict[str, Job] | None) -> str:
    """How the job's last attempt has ended, what followed, and the log to open; empty for a run that goes well."""
    launch, status = read_launch(output_dir), current_status(output_dir)
    if launch is None or launch.job_id is None or (status is not None and status.phase == "finished"):
        return ""
    job = job_of(launch.job_id, known)
    records = [record for record in read_attempts(output_dir) if record["job_id"] == launch.job_id]
    if not records:
        is_bad = job.state in ("failed", "node_fail", "timeout", "out_of_memory", "boot_fail", "deadline")
        return f"{job.reason}; log: {output_dir}/logs/{launch.job_id}_0_log.err" if is_bad else ""
    last = records[-1]
    if status is not None and status.attempt > last["attempt"] and job.state == "running":
        return ""  # it has started again, and runs
    reason = f" ({last['reason']})" if last.get("reason") else ""
    excluded = f"; excluded: {', '.join(last['excluded'])}" if last.get("excluded") else ""
    then = last.get("then", "")
    log = f"{output_dir}/{last.get('log', 'logs')}"
    return f"attempt {last['attempt']} {last['kind']}{reason}: {then}{excluded}; log: {log}"
