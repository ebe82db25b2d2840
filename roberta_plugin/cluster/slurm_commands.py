"""The few questions that are put to SLURM, by its own commands; none of them needs its accounting database."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NamedTuple

LOST = "unknown"  # SLURM forgets jobs some minutes after their end


class Partition(NamedTuple):
    """A partition and how many nodes it has."""

    name: str
    num_nodes: int


def has_slurm() -> bool:
    """Whether SLURM's commands are installed here."""
    return shutil.which("sbatch") is not None


def partitions() -> list[Partition]:
    """The partitions that jobs can be submitted to."""
    lines = (line.split() for line in _output(["sinfo", "--noheader", "--format=%R %D"]).splitlines())
    return [Partition(name, int(num_nodes)) for name, num_nodes in lines]


def job_state(job_id: str) -> str:
    """The job's state in lower case, such as `running`, or LOST where SLURM does not know the job any more."""
    return job_fields(job_id).get("JobState", LOST).lower()


def job_fields(job_id: str) -> dict[str, str]:
    """What SLURM knows about a job (JobState, Reason, ...); empty once it has forgotten it."""
    try:
        text = _output(["scontrol", "show", "job", "--oneliner", job_id])
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def is_to_go_on(job_id: str) -> bool:
    """Whether a job that was told to stop may start again: it is still running, or its time limit ended it.

    A job that its user has cancelled is neither, and one that SLURM itself starts again needs no help.
    """
    fields = job_fields(job_id)
    return fields.get("JobState") == "RUNNING" or fields.get("Reason") == "TimeLimit"


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
    if done.returncode:
        raise OSError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
