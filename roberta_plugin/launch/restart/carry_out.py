"""The decision -> SLURM's commands: requeue, exclude broken nodes, delay the start."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from .attempts import read_attempts, write_attempt
from .policy import FINISHED, Decision, End, Limits, decide, whose

PATIENCE_S = (
    3600.0  # to wait for a controller that does not answer; until it does, nobody else can use the nodes either
)
ASK_EVERY_S = 15.0
UNREACHABLE = re.compile(
    r"contact slurm|timed out|connection|zero bytes|not responding|resolve|unexpected message|temporarily", re.I
)


class Slurm:
    """SLURM's commands, repeated while the controller does not answer."""

    def __init__(self, say: Callable[[str], None], *, patience_s: float = PATIENCE_S) -> None:
        self._say = say
        self._deadline = time.monotonic() + patience_s

    def fields(self, job_id: str) -> dict[str, str] | None:
        """A job's fields in SLURM; empty if SLURM does not know the job, None if it could not be asked."""
        try:
            text = self._call("scontrol", "show", "job", "--oneliner", job_id)
        except SlurmError as error:
            return {} if "Invalid job id" in str(error) else None
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def requeue(self, job_id: str) -> None:
        """Put the job back into the queue.

        Raises:
            SlurmError: if SLURM refuses or does not answer in time.
        """
        self._call("scontrol", "requeue", job_id)

    def update(self, job_id: str, **settings: str) -> None:
        """Change settings of a pending job; a refusal is only logged."""
        try:
            self._call("scontrol", "update", f"jobid={job_id}", *(f"{key}={value}" for key, value in settings.items()))
        except SlurmError as error:
            self._say(str(error))

    def num_nodes(self, partition: str) -> int:
        """Number of nodes in a partition; 0 if unknown."""
        try:
            return sum(map(int, self._call("sinfo", "--noheader", "--format=%D", f"--partition={partition}").split()))
        except (SlurmError, ValueError):
            return 0

    def _call(self, *command: str) -> str:
        while True:
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
                text = done.stderr.strip() or done.stdout.strip()
                if done.returncode == 0:
                    return done.stdout
                is_unreachable = bool(UNREACHABLE.search(text))
            except subprocess.TimeoutExpired:
                text, is_unreachable = "no answer within 120 s", True
            except OSError as error:
                raise SlurmError(f"{command[0]} cannot be run on this node: {error}") from error
            message = f"`{' '.join(command)}` failed: {text}"
            if not is_unreachable or time.monotonic() + ASK_EVERY_S > self._deadline:
                raise SlurmError(message)
            self._say(f"{message}; asking again in {ASK_EVERY_S:.0f} s")
            time.sleep(ASK_EVERY_S)


class SlurmError(Exception):
    """SLURM refused a command or could not be reached."""


def carry_out(end: End, limits: Limits, *, output_dir: Path, slurm: Slurm, say: Callable[[str], None]) -> int:
    """Decide, act, record the attempt; returns the exit code of the job."""
    fields = slurm.fields(end.job_id) if end.kind(limits.preemption_code) != FINISHED else {}
    decision = decide(end, read_attempts(output_dir), limits, job=whose(fields, end.attempt))
    kind = end.kind(limits.preemption_code)
    if decision.restarts:
        try:
            slurm.requeue(end.job_id)
        except SlurmError as error:
            text = f"it could not be requeued ({error}): run `scontrol requeue {end.job_id}` yourself"
            decision = Decision(False, text)
    text = f" ({end.text()})" if end.text() else ""
    say(f"attempt {end.attempt} {kind}{text}: {decision.text}")
    if decision.exclude:
        decision = _exclude(end, decision, fields or {}, limits, slurm=slurm, say=say)
    if decision.restarts and decision.pause_s:
        say(f"it starts in {decision.pause_s} s")
        slurm.update(end.job_id, StartTime=f"now+{decision.pause_s}")
    write_attempt(output_dir, end, decision, limits)
    if kind == FINISHED:
        return 0  # whatever srun says: it may have waited for a rank whose daemon had died
    return end.code or 1


def _exclude(
    end: End, decision: Decision, fields: dict[str, str], limits: Limits, *, slurm: Slurm, say: Callable[[str], None]
) -> Decision:
    """Exclude the nodes that the pre-flight named, if enough others are left."""
    before = [name for name in [fields.get("ExcNodeList", "")] if name not in ("", "(null)")]
    partition = fields.get("Partition", "")
    total = slurm.num_nodes(partition)
    nodes = ",".join(decision.exclude)
    num_before = len(re.findall(r"[^,\[]+(?:\[[^\]]*\])?", ",".join(before)))  # "gpu[1-4]" counts once: a lower bound
    if total and total - num_before - len(decision.exclude) < limits.num_nodes:
        say(f"{nodes} cannot be excluded: partition {partition} would have too few nodes left")
        return Decision(decision.restarts, decision.text, decision.pause_s)
    say(f"the job excludes {nodes} from now on: report it to your cluster's administrators")
    slurm.update(end.job_id, ExcNodeList=",".join([*before, nodes]))
    return decision
