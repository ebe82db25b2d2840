"""Calls of SLURM's commands; none of them needs its accounting database."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator
from typing import NamedTuple

ACTIVE_STATES = ("running", "pending", "requeued", "suspended", "completing", "configuring")
LOST = "unknown"  # SLURM forgets jobs some minutes after their end


class Partition(NamedTuple):
    """A partition and its number of nodes."""

    name: str
    num_nodes: int


def partitions() -> list[Partition]:
    """The partitions that jobs can be submitted to."""
    lines = (line.split() for line in _output(["sinfo", "--noheader", "--format=%R %D"]).splitlines())
    return [Partition(name, int(num_nodes)) for name, num_nodes in lines]


class Job(NamedTuple):
    """A job in squeue: its state in lower case, such as `running`, and the reason why it waits or has ended."""

    state: str
    reason: str


def jobs(job_ids: Collection[str]) -> dict[str, Job]:
    """The jobs that SLURM still knows, by their ids, with one call of squeue.

    Raises:
        OSError: if SLURM cannot be asked.
    """
    if not job_ids:
        return {}
    command = ["squeue", "--noheader", "--states=all", f"--jobs={','.join(sorted(job_ids))}", "--format=%A|%T|%r"]
    lines = [line.split("|", 2) for line in _output_of_known(command).splitlines() if line.count("|") >= 2]
    return {job_id.strip(): Job(state.strip().lower(), reason.strip()) for job_id, state, reason in lines}


def job_state(job_id: str) -> str:
    """The job's state in lower case, such as `running`, or LOST if SLURM no longer knows the job.

    Raises:
        OSError: if SLURM cannot be asked.
    """
    return jobs([job_id]).get(job_id, Job(LOST, "")).state


def cancel(job_id: str) -> None:
    """Cancel a job: its processes are warned, and it is not put back into the queue.

    Raises:
        OSError: if SLURM cannot be asked, or refuses.
    """
    _output(["scancel", job_id])


def queued_tasks(job_ids: Collection[str]) -> dict[str, str]:
    """The states of our pending and running jobs, and of their array tasks.

    Example:
        queued_tasks({"123", "7"})  ->  {"123_4": "pending", "7": "running"}

    Raises:
        OSError: if SLURM cannot be asked.
    """
    if not job_ids:
        return {}
    command = ["squeue", "--noheader", "--me", "--array", f"--jobs={','.join(sorted(job_ids))}", "--format=%F %K %T"]
    tasks = [line.split() for line in _output_of_known(command).splitlines() if line.strip()]
    return {job if task == "N/A" else f"{job}_{task}": state.lower() for job, task, state in tasks}


@contextlib.contextmanager
def submission_environment(*, given: Collection[str] = (), dropped: Collection[str] = ()) -> Iterator[None]:
    """While entered, sbatch and srun inherit nothing from a surrounding job (salloc, srun).

    Args:
        given: options in the script. SBATCH_* variables, the user's defaults, stay if they name an account or similar
            and are not `given`: sbatch prefers them to the script.
        dropped: further variables that the job must not inherit.
    """
    defaults = {"ACCOUNT", "PARTITION", "QOS", "RESERVATION"} - {name.upper() for name in given}
    kept = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", *(f"SBATCH_{name}" for name in defaults)}
    out = {name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SRUN_"))} - kept
    if "SLURM_JOB_ID" in os.environ:  # the GPUs of that job
        out |= {"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"} & os.environ.keys()
    out |= os.environ.keys() & set(dropped)
    before = {name: os.environ.pop(name) for name in out}
    try:
        yield
    finally:
        os.environ.update(before)


def _output_of_known(command: list[str]) -> str:
    """The output of squeue about some jobs; empty if SLURM no longer knows any of them."""
    try:
        return _output(command)
    except OSError as error:
        if "Invalid job id" in str(error):
            return ""
        raise


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "SLURM_TIME_FORMAT": "standard"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except FileNotFoundError as error:
        raise OSError(f"{command[0]} is not installed here: run this on a login node of the cluster.") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"`{' '.join(command)}` did not answer within 60 s: try again when SLURM is up.") from error
    if done.returncode:
        raise OSError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
