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
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.sweeps.run import DONE, FAILED
from roberta_plugin.experiments.sweeps.slurm import JOBS, known_jobs, run_states
from roberta_plugin.launch.report import attempt_lines, last_lines, launched_run, log_path
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.status import Launch, Status, find_runs, read_launch, read_status
from roberta_plugin.locks import ended_training
from roberta_plugin.training import slurm_commands
from roberta_plugin.training.slurm_commands import Job

COLUMNS = ("job", "state", "update", "loss", "tokens/s", "mfu", "time left", "last sign", "restarts", "run folder")
ACTIONS = ("logs", "attempts", "report", "cancel")
NO_ANSWER = "SLURM does not answer"
CLEAR = "\x1b[H\x1b[2J"  # the terminal's codes for: to the top, and clear the screen
SHOWN_FAILURES = 3  # of a sweep
SILENT_S = 60.0  # rank 0 writes every 10 s, or after each update where that takes longer


def add_parser(subparsers: Any) -> None:
    """Add `roberta jobs` and its options."""
    parser = subparsers.add_parser(
        "jobs",
        help="show the progress of launched trainings",
        description="Shows every run that `roberta launch` has submitted below the given folders, and every sweep and "
        "fine-tuning that runs as a job array: of these, how many of their runs are in which state; of a run, the "
        "state of its job and why it waits, the updates done, the training loss as fairseq-train logs it, tokens a "
        "second on all GPUs together, the time left to the last update at the present speed, and when rank 0 last "
        "wrote. Below a run that has failed or started again: why, and the log to open; below one that runs: the rank "
        "that the others wait for most. With one of the words logs, attempts, report and cancel in front of run "
        "folders: the end of the log; how each attempt ended, and what followed; report.md with the loss curves, "
        "written anew; the end of the run's job, which saves a checkpoint.",
        usage="roberta jobs [FOLDER ...] | roberta jobs {logs,attempts,report,cancel} RUN-FOLDER ... [options]",
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help="folders of runs (default: runs)")
    parser.add_argument(
        "--node", type=int, help="logs: of this node, from 0 (default: where the last attempt failed first, else 0)"
    )
    parser.add_argument(
        "--watch", type=float, metavar="SECONDS", help="show the table again every so many seconds, until Ctrl-C"
    )
    parser.add_argument("--lines", type=int, default=40, help="logs: how many lines (40)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table, or do what the first word says."""
    action = str(args.folders[0]) if args.folders else ""
    if args.watch is not None and not args.watch >= 1:
        raise ValueError(f"--watch must be at least 1 second, got {args.watch:g}: each time asks SLURM.")
    if action not in ACTIONS:
        return show_table(args) if args.watch is None else watch(args)
    if len(args.folders) == 1:
        raise ValueError(f"roberta jobs {action}: name the run folder, as in `roberta jobs {action} runs/base`.")
    for folder in args.folders[1:]:
        if (folder / JOBS).is_file():
            act_on_sweep(folder, action)
        elif action == "logs":
            show_log(folder, args)
        elif action == "attempts":
            launched_run(folder)
            print("\n".join(attempt_lines(folder)) or f"{folder}: no attempt has ended yet")
        elif action == "cancel":
            cancel(folder)
        else:
            from roberta_plugin.launch.report import write_report

            launched_run(folder)
            print(f"report: {write_report(folder)}")
    return 0


def show_log(folder: Path, args: argparse.Namespace) -> None:
    """Print the end of a log, below its name."""
    path = log_path(folder, node=args.node)
    print(f"==> {path} <==", *last_lines(path, max(1, args.lines)), sep="\n")


def cancel(folder: Path) -> None:
    """Cancel the job of a run.

    Raises:
        ValueError: if it has ended.
    """
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
            f"{root} is the folder of a sweep: the logs of its runs are CELL/seed-N/log.txt there, and the command "
            "that has submitted it, given again, writes report.md."
        )
    job_ids = sorted({job.partition("_")[0] for job in known_jobs(root).values()})
    active = sorted({task.partition("_")[0] for task in slurm_commands.queued_tasks(job_ids)})
    if not active:
        raise ValueError(f"No job of {root} is active (it had {', '.join(job_ids)}).")
    for job_id in active:
        slurm_commands.cancel(job_id)
    print(f"job {', '.join(active)} of {root}: cancelled")


def watch(args: argparse.Namespace) -> int:
    """Print the table, from the top of the terminal if it is one, until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            print(CLEAR if sys.stdout.isatty() else "", end="")
            print(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}, every {args.watch:g} s")
            show_table(args)
            sys.stdout.flush()
            time.sleep(args.watch)
    return 0


def show_table(args: argparse.Namespace) -> int:
    """Print a row for each run."""
    missing = [folder for folder in args.folders if not folder.is_dir()]
    if missing:
        raise FileNotFoundError(f"There is no folder {missing[0]}: name the folder that holds your runs.")
    runs = [found for folder in args.folders for found in find_runs(folder)]
    sweeps = [found for folder in args.folders for found in find_runs(folder, by=JOBS)]
    if not runs and not sweeps:
        print(f"no launched run in {', '.join(map(str, args.folders))}")
        return 0
    broken = {found: error for found in runs if (error := why_unreadable(found))}
    known = ask_slurm([launch for found in runs if found not in broken and (launch := read_launch(found))])
    rows = [COLUMNS, *(row_of(found, known) if found not in broken else row_without_files(found) for found in runs)]
    notes = ["", *(broken.get(found) or note_of(found, known) for found in runs)]
    for root in sweeps:
        row, note = sweep_row(root)
        rows.append(row)
        notes.append(note)
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


def why_unreadable(output_dir: Path) -> str:
    """What is wrong with a run's files; empty if nothing is."""
    try:
        read_launch(output_dir)
        read_status(output_dir)
    except ValueError as error:
        return str(error)
    return ""


def row_without_files(output_dir: Path) -> tuple[str, ...]:
    """The row of a run whose files cannot be read: the table shows the other runs all the same."""
    return ("-", "unreadable", *("-",) * 7, str(output_dir))


def row_of(output_dir: Path, known: dict[str, Job] | None) -> tuple[str, ...]:
    """One run as the cells of COLUMNS."""
    launch, status = read_launch(output_dir), current_status(output_dir)
    job_id = "" if launch is None or launch.job_id is None else launch.job_id
    job = job_of(output_dir, job_id, known, status)
    progress = ("-",) * 7 if status is None else progress_of(status, job)
    return (job_id or "-", state_of(job, status), *progress, str(output_dir))


def sweep_row(root: Path) -> tuple[tuple[str, ...], str]:
    """A sweep as the cells of COLUMNS, and a note about runs that have failed or that nothing trains."""
    try:
        jobs, states = known_jobs(root), run_states(root)
    except ValueError as error:
        return row_without_files(root), str(error)
    except ChildProcessError:
        return ("-", f"{slurm_commands.LOST} ({NO_ANSWER})", *("-",) * 7, str(root)), ""
    counts = Counter(states.values())
    state = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if name != DONE) or "finished"
    latest = max((job.partition("_")[0] for job in jobs.values()), key=int, default="-")
    notes = [f"failed: {root / name}/log.txt" for name, state_of_run in states.items() if state_of_run == FAILED]
    notes = [*notes[:SHOWN_FAILURES], *([f"{len(notes)} have failed in all"] if len(notes) > SHOWN_FAILURES else [])]
    if not counts.keys() & set(slurm_commands.ACTIVE_STATES):
        again = "" if state == "finished" else ", and runs again what is not done"
        notes.append(f"the command that has submitted them, given again, writes the report{again}")
    return (latest, state, f"{counts[DONE]} of {len(states)} runs", *("-",) * 6, str(root)), "; ".join(notes)


def current_status(output_dir: Path) -> Status | None:
    """What rank 0 last wrote, unless the run was launched again since."""
    launch, status = read_launch(output_dir), read_status(output_dir)
    return status if launch is not None and status is not None and status.job_id == (launch.job_id or "") else None


def job_of(output_dir: Path, job_id: str, known: dict[str, Job] | None, status: Status | None) -> Job:
    """What SLURM says about the job; of a run without SLURM (`roberta train`), what rank 0 wrote, if it lives."""
    if not job_id and status is not None:
        if status.phase == "failed":
            return Job("failed", "its last start ended with an error: see what torchrun has printed")
        if status.phase not in ("starting", "training"):
            return Job("completed", "")
        ended = ended_training(output_dir / "checkpoints")
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


def note_of(output_dir: Path, known: dict[str, Job] | None) -> str:
    """How the job's last attempt has ended, what followed, and the log to open; empty for a run that goes well."""
    launch, status = read_launch(output_dir), current_status(output_dir)
    if launch is None or (status is not None and status.phase == "finished"):
        return ""
    job = job_of(output_dir, launch.job_id or "", known, status)
    records = [record for record in read_attempts(output_dir) if record["job_id"] == launch.job_id]
    if not records:
        is_bad = job.state in ("failed", "node_fail", "timeout", "out_of_memory", "boot_fail", "deadline")
        log = f"; log: {output_dir}/logs/{launch.job_id}_0_log.out" if launch.job_id else ""
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
    log = f"{output_dir}/{last.get('log', 'logs')}"
    return f"attempt {last['attempt']} {last['kind']}{reason}: {then}{excluded}; log: {log}"


def running_note(job: Job, launch: Launch, status: Status | None) -> str:
    """How many of its GPUs a job has now, if not all; the rank that the others wait for."""
    has_fewer = status is not None and job.state == "running" and (status.num_gpus or launch.num_gpus) < launch.num_gpus
    fewer = f"on {status.num_gpus:,} of {launch.num_gpus:,} GPUs" if status is not None and has_fewer else ""
    return "; ".join(part for part in (fewer, slowest_of(job, status)) if part)


def slowest_of(job: Job, status: Status | None) -> str:
    """The rank that the others wait for most, while the training runs."""
    if status is None or status.slowest is None or job.state != "running" or status.phase != "training":
        return ""
    rank, host, median_s, worst_s, all_s = status.slowest
    return (
        f"slowest rank: {rank} on {host}, {median_s:.3g} s an update for data and forward passes "
        f"(worst {worst_s:.3g} s; median of all ranks {all_s:.3g} s)"
    )
