"""The runs of a sweep as one SLURM job array, through submitit: submitted, watched, waited for.

A run is a task of the array, on one node. A preempted or timed-out task is requeued and resumes from its run's last
checkpoint. jobs.json records which run is in which task, so that the next `roberta sweep` leaves alone what still waits
in the queue. Checks, snapshot and the call of sbatch are those of `roberta launch`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.sweeps.run import DONE, FAILED, WAITING, Attempt, RunFolder, keep_weights, state_of
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.checks import check_partition
from roberta_plugin.launch.resources import Resources, check_resources, check_text, keep_secrets

JOBS, _LOGS = "jobs.json", "submitit"
POLL_S = 10.0
PATIENCE_S = 3600.0  # a controller may be restarted while its jobs run
SAY_EVERY_S = 600.0


class SweepJob:
    """A task of the array: check the GPUs, do one run, stop in order when SLURM takes the node away.

    `after` is called with the folder of a run that is done: in its job, where the GPUs are.
    """

    def __init__(self, *, num_gpus: int = 0, after: Callable[[RunFolder], None] | None = None) -> None:
        self._num_gpus = num_gpus
        self._after = after
        self._attempt: Attempt | None = None

    def __call__(self, folder: RunFolder) -> str:
        """The state the run is left in, or "elsewhere" if another process trains it.

        Raises:
            RuntimeError: if the run has failed, so that the task of the array fails too.
        """
        self._check_gpus(folder)
        self._attempt = folder.start()
        state = self._attempt.wait() if self._attempt else "elsewhere"
        if state == FAILED:
            raise RuntimeError(
                f"{folder.run.name}: {(folder.failure() or {}).get('reason')}; see {folder.path}/log.txt"
            )
        if self._after and folder.state() == DONE:  # also where an earlier start of this job has done the run
            self._after(folder)
        return state

    def checkpoint(self, folder: RunFolder) -> Any:
        """Called by submitit when the task is preempted or its time is up: stop, and be called again later."""
        import submitit

        if self._attempt:
            self._attempt.stop()
        again = SweepJob(num_gpus=self._num_gpus, after=self._after)
        return submitit.helpers.DelayedSubmission(again, folder)

    def _check_gpus(self, folder: RunFolder) -> None:
        if self._num_gpus == 0 or "--cpu" in folder.run.arguments:
            return
        from roberta_plugin.launch import preflight

        try:
            preflight.check_this_node(self._num_gpus)
        except preflight.PreflightError as error:
            folder.fail(str(error))
            raise


def submit(
    folders: Sequence[RunFolder],
    *,
    root: Path,
    name: str,
    code: Path,
    num_parallel: int,
    resources: Resources,
    after: Callable[[RunFolder], None] | None = None,
) -> dict[str, str]:
    """Submit the runs as one array of which at most `num_parallel` tasks run at a time.

    All nodes see the file system of `root`. `after` is what a job does with the folder of its run when that is done.
    Returns the job id of each run, by its name.

    Raises:
        ValueError: if SLURM is not there, sbatch refuses, or the resources cannot work.
    """
    resources = dataclasses.replace(resources, env=keep_secrets(resources.env))
    check_text({"--output-dir": root, "the job's name": name})
    check_slurm(resources)
    check_partition(resources)
    from roberta_plugin.launch.submission import submit_array

    jobs = submit_array(
        SweepJob(num_gpus=resources.gpus_per_node, after=after),
        folders,
        folder=root / _LOGS,
        name=name,
        code=code,
        num_parallel=num_parallel,
        resources=resources,
    )
    submitted = {folder.run.name: job for folder, job in zip(folders, jobs, strict=True)}
    write_json(root / JOBS, {**known_jobs(root), **submitted})
    return submitted


def check_slurm(resources: Resources | None) -> None:
    """Refuse resources that cannot work, or that lack a time limit, before anything is written."""
    if resources is None or not resources.time:
        raise ValueError(
            "The runs have no time limit, which --slurm needs: write `slurm: {time: 8:00:00}` in the grid file, or "
            "--slurm time=8:00:00. A run that needs longer is requeued and resumes."
        )
    check_resources(resources)


def known_jobs(root: Path) -> dict[str, str]:
    """Job ids by the runs' names, of all submissions from this folder."""
    remedy = "cancel the sweep's jobs that still wait, if any (squeue --me), and delete the file"
    return {name: str(job) for name, job in (read_json(root / JOBS, keys=(), remedy=remedy) or {}).items()}


def run_states(root: Path) -> dict[str, str]:
    """The states of a sweep's runs by their names; of what waits or runs in SLURM's queue, SLURM's word.

    Raises:
        ChildProcessError: if SLURM cannot be asked.
    """
    states = {str(path.parent.relative_to(root)): state_of(path.parent) for path in root.glob("*/seed-*/run.json")}
    queued = queued_runs(root)
    for name, state in states.items():
        if state == WAITING or (state == FAILED and name in queued):
            states[name] = queued.get(name, "not in the queue")
    return dict(sorted(states.items()))


def queued_runs(root: Path) -> dict[str, str]:
    """The runs that wait or run in SLURM's queue, with their states there."""
    jobs = known_jobs(root)
    if not jobs:
        return {}
    try:
        alive = slurm_commands.queued_tasks({job.partition("_")[0] for job in jobs.values()})
    except OSError as error:  # to guess would mean to submit a run twice
        raise ChildProcessError(f"{root / JOBS} names jobs of SLURM, and SLURM cannot be asked: {error}") from error
    return {name: alive[job] for name, job in jobs.items() if job in alive}


def wait_for_queue(
    folders: Sequence[RunFolder],
    *,
    root: Path,
    keep: str,
    say: Callable[[str], None],
    look: Callable[[], None],
) -> None:
    """Wait until the queue holds no run any more; those that left it without training have failed.

    Unless `keep` is `all`, runs that are done lose what is needed to resume. `look` is called after each poll.

    Raises:
        ChildProcessError: if SLURM has not answered for an hour.
    """
    while _may_be_queued(root, say):
        time.sleep(POLL_S)
        look()
        if keep != "all":
            keep_weights(folders)
    jobs = known_jobs(root)
    for folder in folders:
        job = jobs.get(folder.run.name)
        if job is not None and folder.state() == WAITING:
            log = root / _LOGS / f"{job}_0_log.err"
            folder.fail(f"job {job} has ended, and the run is not done; its own log: {log}")


def _may_be_queued(root: Path, say: Callable[[str], None]) -> bool:
    """Whether runs are in SLURM's queue; retries for an hour if squeue fails, as the jobs themselves do."""
    begun = time.monotonic()
    say_at = begun
    while True:
        try:
            answer = bool(queued_runs(root))
        except ChildProcessError as error:
            now = time.monotonic()
            if now > begun + PATIENCE_S:
                raise
            if now >= say_at:
                say_at = now + SAY_EVERY_S
                say(
                    f"{time.strftime('%H:%M:%S')} {error}; the jobs continue, and SLURM is asked again every "
                    f"{POLL_S:.0f} s for {(begun + PATIENCE_S - now) / 60:.0f} minutes"
                )
            time.sleep(POLL_S)
            continue
        if say_at > begun:
            say(f"{time.strftime('%H:%M:%S')} SLURM answers again")
        return answer
