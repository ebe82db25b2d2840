"""Calls SLURM's commands. Its accounting database is not needed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator
from typing import NamedTuple

ACTIVE_STATES = ("running", "pending", "requeued", "suspended", "completing", "configuring")
LOST = "unknown"  # SLURM forgets jobs some minutes after their end


def partitions() -> dict[str, int]:
    """The number of nodes of each partition that jobs can be submitted to, by its name."""
    lines = (line.split() for line in _output(["sinfo", "--noheader", "--format=%R %D"]).splitlines())
    return {name: int(num_nodes) for name, num_nodes in lines}


def check_partition(partition: str | None, *, nodes: int) -> None:
    """Refuse a partition that the cluster does not have, or that has fewer nodes than are asked for.

    Raises:
        ValueError: naming the partitions that there are; also where SLURM cannot be asked.
    """
    try:
        sizes = partitions()
    except OSError as error:
        reason = str(error).splitlines()[0].partition(": run")[0].partition(": try")[0]
        raise ValueError(
            f"SLURM cannot be asked here ({reason}). Submit from a login node of the cluster when SLURM is up, or look "
            "at the job with --dry-run; `roberta train` and `roberta pretrain` train on this machine."
        ) from error
    names = partition.split(",") if partition is not None else []
    missing = [name for name in names if name not in sizes]
    if missing:
        raise ValueError(f"The cluster has no partition {missing[0]!r}: --partition can be {', '.join(sorted(sizes))}.")
    most = max((sizes[name] for name in names), default=nodes)
    if nodes > most:
        raise ValueError(f"--nodes is {nodes}, and the partition {partition} has {most} nodes in all.")


class Job(NamedTuple):
    """A job in squeue: its state in lower case, such as `running`, and the reason why it waits or has ended."""

    state: str
    reason: str

    @property
    def is_active(self) -> bool:
        """True if it waits, runs or ends."""
        return self.state in ACTIVE_STATES


def jobs(job_ids: Collection[str], *, ours: bool = False) -> dict[str, Job]:
    """The jobs that SLURM still knows and the tasks of arrays, by their ids, with one call of squeue.

    With `ours`, jobs of other users are ignored: SLURM may have reused a number.

    Example:
        jobs({"123", "7"})  ->  {"123_4": Job("pending", "Priority"), "7": Job("running", "None")}

    Raises:
        OSError: if SLURM cannot be asked.
    """
    if not job_ids:
        return {}
    command = ["squeue", "--noheader", "--array", "--states=all", f"--jobs={','.join(sorted(job_ids))}"]
    try:
        text = _output([*command, *["--me"] * ours, "--format=%F|%K|%T|%r"])
    except OSError as error:
        if "Invalid job id" in str(error):  # SLURM no longer knows any of them
            return {}
        raise
    lines = [line.strip().split("|", 3) for line in text.splitlines() if line.count("|") >= 3]
    return {
        job if task == "N/A" else f"{job}_{task}": Job(state.lower(), reason.strip())
        for job, task, state, reason in lines
    }


def cancel(job_id: str) -> None:
    """Cancel a job: its processes are warned, and it is not put back into the queue.

    Raises:
        OSError: if SLURM cannot be asked, or refuses.
    """
    _output(["scancel", job_id])


@contextlib.contextmanager
def submission_environment(*, options: Collection[str] = (), dropped: Collection[str] = ()) -> Iterator[None]:
    """While entered, sbatch and srun inherit nothing from a surrounding job (salloc, srun).

    Args:
        options: those in the script. SBATCH_* variables, the user's defaults, stay if they name an account or similar
            that is not among them: sbatch prefers them to the script.
        dropped: further variables that the job must not inherit.
    """
    defaults = {"ACCOUNT", "PARTITION", "QOS", "RESERVATION"} - {name.upper() for name in options}
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
