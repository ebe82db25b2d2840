"""`roberta jobs`: state, update, loss, speed and time left of launched runs, and why they wait or have failed.

Also the logs of a run, how its attempts ended, its report, and the end of its job.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.experiments.sweeps.run import DONE, FAILED
from roberta_plugin.experiments.sweeps.slurm import JOBS, known_jobs, run_states
from roberta_plugin.launch.report import attempt_lines, launched_run, log_path, write_report
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.status import Launch, Status, find_runs, read_launch, read_status
from roberta_plugin.locks import ended_training
from roberta_plugin.settings import Checked, add_options, from_arguments, setting
from roberta_plugin.training import slurm_commands
from roberta_plugin.training.log import last_lines
from roberta_plugin.training.slurm_commands import Job

COLUMNS = ("job", "state", "update", "loss", "tokens/s", "mfu", "time left", "last sign", "restarts", "run folder")
ACTIONS = ("logs", "attempts", "report", "cancel")
NO_ANSWER = "SLURM does not answer"
CLEAR = "\x1b[H\x1b[2J"  # the terminal's codes for: to the top, and clear the screen
SHOWN_FAILURES = 3  # of a sweep
SILENT_S = 60.0  # rank 0 writes every 10 s, or after each update where that takes longer


@dataclass(frozen=True, kw_only=True)
class JobsSettings(Checked):
    """What to show; the fields are options of `roberta jobs`."""

    folders: tuple[Path, ...] = setting(
        (), "folders of runs", flag="folders", nargs="*", metavar="FOLDER", default_text="runs"
    )
    node: int | None = setting(
        None, "logs: of this node, from 0", default_text="where the last attempt failed first, else 0"
    )
    watch: float | None = setting(
        None,
        "show the table again after this many seconds, until Ctrl-C; each time asks SLURM",
        metavar="SECONDS",
        smallest=1,
    )
    lines: int = setting(40, "logs: number of lines")


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta jobs` and add its options."""
    parser.usage = "roberta jobs [FOLDER ...] | roberta jobs {logs,attempts,report,cancel} RUN-FOLDER ... [options]"
    parser.description = (
        "Shows every run that `roberta launch` has submitted below the given folders, and every sweep and fine-tuning "
        "that runs as a job array, with the number of its runs in each state. For a run: the state of its job and why "
        "it waits, the updates done, the training loss as fairseq-train logs it, tokens per second on all GPUs "
        "together, the time left to the last update at the present speed, and when rank 0 last wrote. Below a run that "
        "has failed or restarted: why, and the log to open; below a running one: its slowest rank. With one of the "
        "words logs, attempts, report and cancel before run folders: show the end of the log; show how each attempt "
        "ended, and what followed; write report.md with the loss curves; end the run's job, which saves a checkpoint."
    )
    add_options(parser, JobsSettings)


def run(args: argparse.Namespace) -> int:
    """Print the table, or do what the first word says."""
    settings = from_arguments(JobsSettings, vars(args))
    folders = settings.folders or (Path("runs"),)
    action = str(folders[0])
    if action not in ACTIONS:
        return show_table(folders) if settings.watch is None else watch(folders, settings.watch)
    if len(folders) == 1:
        raise ValueError(f"roberta jobs {action}: name the run folder, as in `roberta jobs {action} runs/base`.")
    for folder in folders[1:]:
        if (folder / JOBS).is_file():
            act_on_sweep(folder, action)
        elif action == "logs":
            path = log_path(folder, node=settings.node)
            print(f"==> {path} <==", *last_lines(path, max(1, settings.lines)), sep="\n")
        elif action == "attempts":
            launched_run(folder)
            print("\n".join(attempt_lines(folder)) or f"{folder}: no attempt has ended yet")
        elif action == "cancel":
            cancel(folder)
        else:
            launched_run(folder)
            print(f"report: {write_report(folder)}")
    return 0


def cancel(folder: Path) -> None:
    """Cancel the job of a run."""
    job_id = launched_run(folder).job_id or ""
    state = slurm_commands.job_state(job_id)
    if state not in slurm_commands.ACTIVE_STATES:
        raise ValueError(f"Job {job_id} of {folder} is not active: its state is {state}.")
    slurm_commands.cancel(job_id)
    saves = ", after saving a checkpoint" if state == "running" else ""
    print(f"job {job_id} of {folder}: cancelled, it ends{saves}")


def act_on_sweep(root: Path, action: str) -> None:
    """Cancel what is left of a job array; its logs and its report are elsewhere.

    Raises:
        ValueError: for another action, saying where to look; also if all jobs have ended.
    """
    if action != "cancel":
        raise ValueError(
            f"{root} is the folder of a sweep: the logs of its runs are SETTING/seed-N/log.txt there, and the command "
            "that has submitted it, given again, writes report.md."
        )
    job_ids = sorted({job.partition("_")[0] for job in known_jobs(root).values()})
    active = sorted({task.partition("_")[0] for task in slurm_commands.queued_tasks(job_ids)})
    if not active:
        raise ValueError(f"No job of {root} is active (it had {', '.join(job_ids)}).")
    for job_id in active:
        slurm_commands.cancel(job_id)
    print(f"job {', '.join(active)} of {root}: cancelled")


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
    """Print a row for each run."""
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise FileNotFoundError(f"There is no folder {missing[0]}: name the folder that holds your runs.")
    runs = [found for folder in folders for found in find_runs(folder)]
    sweeps = [found for folder in folders for found in find_runs(folder, by=JOBS)]
    if not runs and not sweeps:
        print(f"no launched run in {', '.join(map(str, folders))}")
        return 0
    known = ask_slurm(runs)
    entries = [(COLUMNS, ""), *(run_entry(run, known) for run in runs), *(sweep_entry(root) for root in sweeps)]
    widths = [max(len(row[column]) for row, _ in entries) for column in range(len(COLUMNS))]
    for row, note in entries:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if note:
            print(f"    {note}")
    return 0


def ask_slurm(runs: Sequence[Path]) -> dict[str, Job] | None:
    """The jobs of run folders in SLURM, by their ids; None if SLURM does not answer."""
    ids = set()
    for folder in runs:
        with contextlib.suppress(ValueError):  # a damaged file has its own row
            launch = read_launch(folder)
            ids |= {launch.job_id} if launch is not None and launch.job_id else set()
    try:
        return slurm_commands.jobs(ids)
    except OSError:
        return None


def cells(job_id: str, state: str, folder: Path, *progress: str) -> tuple[str, ...]:
    """A row of the table; missing progress is `-`."""
    return (job_id, state, *progress, *("-",) * (len(COLUMNS) - 3 - len(progress)), str(folder))


def run_entry(folder: Path, known: dict[str, Job] | None) -> tuple[tuple[str, ...], str]:
    """A run as the cells of COLUMNS, and a note about its last attempt; empty for a run that goes well."""
    try:
        launch, status = read_launch(folder), read_status(folder)
    except ValueError as error:  # the table shows the other runs all the same
        return cells("-", "unreadable", folder), str(error)
    job_id = "" if launch is None else launch.job_id or ""
    if launch is None or (status is not None and status.job_id != job_id):
        status = None  # the run was launched again since rank 0 wrote it
    job = job_of(folder, job_id, known, status)
    progress = () if status is None else progress_of(status, job)
    is_finished = status is not None and status.phase == "finished"
    note = "" if launch is None or is_finished else note_of(folder, launch, status, job)
    return cells(job_id or "-", state_of(job, status), folder, *progress), note


def sweep_entry(root: Path) -> tuple[tuple[str, ...], str]:
    """A sweep as the cells of COLUMNS, and a note about runs that have failed or have no job."""
    try:
        jobs, states = known_jobs(root), run_states(root)
    except ValueError as error:
        return cells("-", "unreadable", root), str(error)
    except ChildProcessError:
        return cells("-", f"{slurm_commands.LOST} ({NO_ANSWER})", root), ""
    counts = Counter(states.values())
    state = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if name != DONE) or "finished"
    latest = max((job.partition("_")[0] for job in jobs.values()), key=int, default="-")
    notes = [f"failed: {root / name}/log.txt" for name, state_of_run in states.items() if state_of_run == FAILED]
    notes = [*notes[:SHOWN_FAILURES], *([f"{len(notes)} have failed in all"] if len(notes) > SHOWN_FAILURES else [])]
    if not counts.keys() & set(slurm_commands.ACTIVE_STATES):
        again = "" if state == "finished" else ", and runs again what is not done"
        notes.append(f"the command that has submitted them, given again, writes the report{again}")
    return cells(latest, state, root, f"{counts[DONE]} of {len(states)} runs"), "; ".join(notes)


def job_of(folder: Path, job_id: str, known: dict[str, Job] | None, status: Status | None) -> Job:
    """The job as SLURM knows it; without SLURM (`roberta train`), as rank 0 wrote it, if rank 0 lives."""
    if not job_id and status is not None:
        if status.phase == "failed":
            return Job("failed", "its last start ended with an error: see what torchrun has printed")
        if status.phase not in ("starting", "training"):
            return Job("completed", "")
        ended = ended_training(folder / "checkpoints")
        return Job("failed", f"{ended} has ended while {status.phase}") if ended else Job("running", "")
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
    """Update, loss, tokens a second, MFU, time left, last sign, restarts; stale values are omitted."""
    trains = job.state == "running" and status.phase == "training" and not is_silent(status)
    left = status.seconds_left if trains else None
    speed = status.tokens_per_second if trains or status.phase == "finished" else None
    return (
        f"{status.update:,}" + (f" of {status.max_update:,}" if status.max_update > 0 else ""),
        "-" if status.loss is None else f"{status.loss:.3f}",
        "-" if speed is None else f"{speed:,.0f}",
        "-" if speed is None or status.mfu is None else f"{status.mfu:.1f} %",
        "-" if left is None else str(datetime.timedelta(seconds=round(left))),
        f"{datetime.timedelta(seconds=round(age_of(status)))} ago",
        str(status.attempt),
    )


def note_of(folder: Path, launch: Launch, status: Status | None, job: Job) -> str:
    """How the job's last attempt ended, what followed, and the log to open; empty for a run that goes well."""
    records = [record for record in read_attempts(folder) if record["job_id"] == launch.job_id]
    if not records:
        is_bad = job.state in ("failed", "node_fail", "timeout", "out_of_memory", "boot_fail", "deadline")
        log = f"; log: {folder}/logs/{launch.job_id}_0_log.out" if launch.job_id else ""
        return f"{job.reason}{log}" if is_bad else running_note(job, launch, status)
    last = records[-1]
    if status is not None and status.attempt > last["attempt"] and job.state == "running":
        return running_note(job, launch, status)  # it has started again, and runs
    reason = f" ({last['reason']})" if last.get("reason") else ""
    excluded = f"; excluded: {', '.join(last['excluded'])}" if last.get("excluded") else ""
    then = last.get("then", "")
    if last.get("restarts") and job.state not in slurm_commands.ACTIVE_STATES and job.reason != NO_ANSWER:
        why = f" ({job.reason})" if job.reason not in ("", "None") else ""
        then = f"SLURM has not restarted the job, its state is {job.state}{why}: launch the run again to resume it"
    return (
        f"attempt {last['attempt']} {last['kind']}{reason}: {then}{excluded}; log: {folder}/{last.get('log', 'logs')}"
    )


def running_note(job: Job, launch: Launch, status: Status | None) -> str:
    """The number of GPUs of a running job if not all, and its slowest rank."""
    if status is None or job.state != "running":
        return ""
    parts = []
    if (status.num_gpus or launch.num_gpus) < launch.num_gpus:
        parts.append(f"on {status.num_gpus:,} of {launch.num_gpus:,} GPUs")
    if status.slowest is not None and status.phase == "training":
        rank, host, median_s, worst_s, all_s = status.slowest
        parts.append(
            f"slowest rank: {rank} on {host}, {median_s:.3g} s an update for data and forward passes "
            f"(worst {worst_s:.3g} s; median of all ranks {all_s:.3g} s)"
        )
    return "; ".join(parts)
