"""`roberta jobs`: state, update, loss, speed and time left of launched runs, and why they wait or have failed.

Also the logs of a run, how its attempts ended, its report, and the end of its job.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.cli.command import command
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.log import last_lines
from roberta_plugin.launch.report import attempt_lines, launched_job, log_path, write_report
from roberta_plugin.launch.restart import CRASHED, LEFT_ALONE, START_FAILED, read_attempts
from roberta_plugin.launch.run_folder import (
    ITSELF,
    LOG,
    Status,
    copied_from,
    find_submitted,
    known_jobs,
    read_status,
    run_states,
)
from roberta_plugin.launch.slurm_commands import Job
from roberta_plugin.locks import ended_training
from roberta_plugin.runs import DONE, FAILED, FAILURE
from roberta_plugin.settings import Checked, check_roads, setting

COLUMNS = ("job", "state", "update", "loss", "tokens/s", "mfu", "time left", "last written", "restarts", "run folder")
ACTIONS = ("logs", "attempts", "report", "cancel")
NO_ANSWER = "SLURM does not answer"
CLEAR = "\x1b[H\x1b[2J"  # the terminal's codes for: to the top, and clear the screen
SHOWN_FAILURES = 3  # of a sweep
SILENT_S = 60.0  # rank 0 writes every 10 s, or after each update where that takes longer


@dataclass(frozen=True, kw_only=True)
class JobsSettings(Checked):
    """Settings of `roberta jobs`, whose options they are."""

    folders: tuple[Path, ...] = setting(
        (), "folders of runs", flag="folders", nargs="*", metavar="FOLDER", default_text="runs"
    )
    node: int | None = setting(
        None, "logs: of this node, from 0", default_text="where the last attempt failed first, else 0", road="logs"
    )
    watch: float | None = setting(
        None,
        "show the table again after this many seconds, until Ctrl-C; each time asks SLURM",
        metavar="SECONDS",
        smallest=1,
        road="table",
    )
    lines: int = setting(40, "logs: number of lines", road="logs")


@command(
    JobsSettings,
    usage="roberta jobs [FOLDER ...] | roberta jobs {logs,attempts,report,cancel} RUN-FOLDER ... [options]",
)
def jobs(settings: JobsSettings) -> int:
    """Shows every run that `roberta launch` has submitted below the given folders, and every sweep and fine-tuning that
    runs as a job array, with the number of its runs in each state. For a run: the state of its job and why it waits,
    the updates done, the training loss as fairseq-train logs it, tokens per second on all GPUs together, the time left
    to the last update at the present speed, and when rank 0 last wrote. Below a run that has failed or restarted: why,
    and the log to open; below a running one: its slowest rank. With one of the words logs, attempts, report and cancel
    before run folders: show the end of the log; show how each attempt ended, and what followed; write report.md with
    the loss curves; end the run's job, which saves a checkpoint.
    """
    folders = settings.folders or (Path("runs"),)
    action = str(folders[0])
    closed = {} if action == "logs" else {"logs": "without the word logs"}
    check_roads(settings, closed | ({"table": f"with the word {action}"} if action in ACTIONS else {}))
    if action not in ACTIONS:
        return show_table(folders) if settings.watch is None else watch(folders, settings.watch)
    if len(folders) == 1:
        raise ValueError(f"roberta jobs {action}: name the run folder, as in `roberta jobs {action} runs/base`.")
    for folder in folders[1:]:
        if action == "logs":
            path = log_path(folder, node=settings.node)
            print(f"==> {path} <==", *last_lines(path, max(1, settings.lines)), sep="\n")
        elif action == "cancel":
            cancel(folder)
        else:
            launched_job(folder)
            attempts = "\n".join(attempt_lines(folder)) or f"{folder}: no attempt has ended yet"
            print(attempts if action == "attempts" else f"report: {write_report(folder)}")
    return 0


def cancel(folder: Path) -> None:
    """Cancel the jobs of a folder that are active."""
    if original := copied_from(folder):
        raise ValueError(f"{folder} is a copy of {original}, whose jobs these are: name that one to cancel them.")
    submitted = known_jobs(folder)
    ids = {job.partition("_")[0] for job in submitted.values() if job} or {launched_job(folder)}
    jobs = slurm_commands.jobs(ids)
    active = sorted({job_id.partition("_")[0] for job_id, job in jobs.items() if job.is_active})
    if not active:
        raise ValueError(f"No job of {folder} is active (it had {', '.join(sorted(ids))}).")
    for job_id in active:
        slurm_commands.cancel(job_id)
    saves = ITSELF in submitted and jobs[active[0]].state == "running"
    print(f"job {', '.join(active)} of {folder}: cancelled" + (", it ends after saving a checkpoint" if saves else ""))


def watch(folders: Sequence[Path], seconds: float) -> int:
    """Print the table, from the top of the terminal if it is one, until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            print(CLEAR if sys.stdout.isatty() else "", end="")
            print(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}, every {seconds:g} s")
            show_table(folders)
            sys.stdout.flush()
            time.sleep(seconds)
    return 0


def show_table(folders: Sequence[Path]) -> int:
    """Print a row for each launched run and each sweep."""
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise FileNotFoundError(f"There is no folder {missing[0]}: name the folder that holds your runs.")
    submitted = [run for folder in folders for run in find_submitted(folder)]
    if not submitted:
        print(f"no launched run in {', '.join(map(str, folders))}")
        return 0
    queue = ask_slurm(submitted)
    entries = [(COLUMNS, ""), *(entry(folder, queue) for folder in submitted)]
    widths = [max(len(row[column]) for row, _ in entries) for column in range(len(COLUMNS))]
    for row, note in entries:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if note:
            print(f"    {note}")
    return 0


def ask_slurm(folders: Sequence[Path]) -> dict[str, Job] | None:
    """The jobs of the folders in SLURM, by their ids; None if SLURM does not answer."""
    ids = set()
    for folder in folders:
        with contextlib.suppress(ValueError):  # a damaged file has its own row
            ids |= {job.partition("_")[0] for job in known_jobs(folder).values() if job}
    try:
        return slurm_commands.jobs(ids)
    except OSError:
        return None


def cells(job_id: str, state: str, folder: Path, *progress: str) -> tuple[str, ...]:
    """A row of the table; missing progress is `-`."""
    return (job_id, state, *progress, *("-",) * (len(COLUMNS) - 3 - len(progress)), str(folder))


def entry(folder: Path, queue: dict[str, Job] | None) -> tuple[tuple[str, ...], str]:
    """A launched run or a sweep as the cells of COLUMNS, and a note; empty for a run that goes well."""
    try:
        jobs = known_jobs(folder)
        original = copied_from(folder)
        queue = queue if original is None else {}
        row, note = run_entry(folder, jobs[ITSELF], queue) if ITSELF in jobs else sweep_entry(folder, jobs, queue)
        return row, note if original is None else f"a copy of {original}, which has the jobs"
    except ValueError as error:  # the table shows the others all the same
        return cells("-", "unreadable", folder), str(error)


def run_entry(folder: Path, job_id: str, queue: dict[str, Job] | None) -> tuple[tuple[str, ...], str]:
    """A launched run, and how its last attempt ended."""
    status = read_status(folder)
    if status is not None and status.job_id != job_id:
        status = None  # the run was launched again since rank 0 wrote it
    job = known_job(folder, job_id, queue, status)
    progress = () if status is None else progress_cells(status, job)
    is_finished = status is not None and status.phase == "finished"
    note = "" if is_finished else attempt_note(folder, job_id, status, job)
    return cells(job_id or "-", shown_state(job, status), folder, *progress), note


def sweep_entry(root: Path, jobs: dict[str, str], queue: dict[str, Job] | None) -> tuple[tuple[str, ...], str]:
    """A sweep, and which of its runs have failed, or that none has a job any more."""
    latest = max((job.partition("_")[0] for job in jobs.values()), key=int, default="-")
    if queue is None:
        return cells(latest, f"{slurm_commands.LOST} ({NO_ANSWER})", root), ""
    states = run_states(root, queue)
    counts = Counter(states.values())
    waiting = (queue[job] for job in jobs.values() if job in queue and queue[job].state == "pending")
    reasons = ", ".join(sorted({job.reason for job in waiting} - {"", "None"}))
    state = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if name != DONE) or "finished"
    state = state.replace("pending", f"pending ({reasons})") if reasons else state
    failed = [root / name for name, run_state in states.items() if run_state == FAILED]
    notes = [f"failed: {run / (LOG if (run / LOG).is_file() else FAILURE)}" for run in failed]
    notes = [*notes[:SHOWN_FAILURES], *([f"{len(notes)} have failed in all"] if len(notes) > SHOWN_FAILURES else [])]
    if not counts.keys() & set(slurm_commands.ACTIVE_STATES):
        again = "" if state == "finished" else ", and runs again what is not done"
        notes.append(f"the command that has submitted them, given again, writes the report{again}")
    return cells(latest, state, root, f"{counts[DONE]} of {len(states)} runs"), "; ".join(notes)


def known_job(folder: Path, job_id: str, queue: dict[str, Job] | None, status: Status | None) -> Job:
    """The job as SLURM knows it; without SLURM (`roberta train`), as rank 0 wrote it, if rank 0 lives."""
    if not job_id and status is not None:
        if status.phase == "failed":
            return Job("failed", "its last start ended with an error: see what torchrun has printed")
        if status.phase not in ("starting", "training"):
            return Job("completed", "")
        ended = ended_training(folder / "checkpoints")
        return Job("failed", f"{ended} has ended while {status.phase}") if ended else Job("running", "")
    if queue is None:
        return Job(slurm_commands.LOST, NO_ANSWER)
    if job_id not in queue:
        last = [record for record in read_attempts(folder) if record["job_id"] == job_id][-1:]
        has_failed = any(
            end["kind"] in (CRASHED, START_FAILED) and not end.get("restarts") and end.get("then") != LEFT_ALONE
            for end in last
        )
        return Job(FAILED if has_failed else slurm_commands.LOST, "")
    return queue[job_id]


def shown_state(job: Job, status: Status | None) -> str:
    """SLURM's word for the job, and why it waits; the status of rank 0 instead if it says more.

    Examples: "pending (Priority)", "running (starting)", "running (silent)", "failed"; "stopped" for a job that SLURM
    calls completed, or no longer knows, after rank 0 stopped it.
    """
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
    """True if rank 0's last status is overdue: the training hangs, validates or saves."""
    an_update = 0.0 if not status.updates_per_second else 1 / status.updates_per_second
    return age(status) > max(SILENT_S, 10 * an_update)


def age(status: Status) -> float:
    """Seconds since rank 0 last wrote its status."""
    return max(0.0, time.time() - status.time)


def progress_cells(status: Status, job: Job) -> tuple[str, ...]:
    """Update, loss, tokens a second, MFU, time left, when it was last written, restarts; stale values are omitted."""
    trains = job.state == "running" and status.phase == "training" and not is_silent(status)
    left = status.seconds_left if trains else None
    speed = status.tokens_per_second if trains or status.phase == "finished" else None
    return (
        f"{status.update:,}" + (f" of {status.max_update:,}" if status.max_update > 0 else ""),
        "-" if status.loss is None else f"{status.loss:.3f}",
        "-" if speed is None else f"{speed:,.0f}",
        "-" if speed is None or status.mfu is None else f"{status.mfu:.1f} %",
        "-" if left is None else str(datetime.timedelta(seconds=round(left))),
        f"{datetime.timedelta(seconds=round(age(status)))} ago",
        str(status.attempt),
    )


def attempt_note(folder: Path, job_id: str, status: Status | None, job: Job) -> str:
    """How the job's last attempt ended, what followed, and the log to open; empty for a run that goes well."""
    records = [record for record in read_attempts(folder) if record["job_id"] == job_id]
    if not records or (status is not None and status.attempt > records[-1]["attempt"]):  # the present attempt has none
        is_bad = job.state in ("failed", "node_fail", "timeout", "out_of_memory", "boot_fail", "deadline")
        log = folder / f"logs/{job_id}_0_log.out"
        where = f"log: {log}" if log.is_file() else f"no log, as where the nodes do not see {folder}"
        return f"{job.reason}; {where}" if is_bad and job_id else job.reason if is_bad else slowest_rank(job, status)
    last = records[-1]
    reason = f" ({last['reason']})" if last.get("reason") else ""
    excluded = f"; excluded: {', '.join(last['excluded'])}" if last.get("excluded") else ""
    then = last.get("then", "")
    if last.get("restarts") and not job.is_active and job.reason != NO_ANSWER:
        why = f" ({job.reason})" if job.reason not in ("", "None") else ""
        then = f"SLURM has not restarted the job, its state is {job.state}{why}: launch the run again to resume it"
    return (
        f"attempt {last['attempt']} {last['kind']}{reason}: {then}{excluded}; log: {folder}/{last.get('log', 'logs')}"
    )


def slowest_rank(job: Job, status: Status | None) -> str:
    """The slowest rank of a running job; empty if it is not known."""
    if status is None or status.slowest is None or job.state != "running" or status.phase != "training":
        return ""
    rank, host, median_s, worst_s, all_s = status.slowest
    return (
        f"slowest rank: {rank} on {host}, {median_s:.3g} s an update for data and forward passes "
        f"(worst {worst_s:.3g} s; median of all ranks {all_s:.3g} s)"
    )
