"""How an attempt ended, and how earlier ones did -> what follows.

The counts begin anew whenever an attempt has saved a checkpoint:

    stopped after saving (preemption, time limit)     starts again
    failed in training, newer checkpoint              starts again
    failed in training, no newer checkpoint           starts again, MAX_CRASHES attempts in all
    failed while starting, run without a checkpoint   ends
    failed while starting, run with a checkpoint      starts again after a pause, MAX_START_FAILURES attempts in all
    cancelled, or started again by SLURM itself       nothing is done

--max-requeues limits all of them together. Attempts of a job are numbered from 0, as in SLURM_RESTART_COUNT.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MAX_CRASHES = 3
MAX_START_FAILURES = 5
PAUSES_S = (0, 300, 600, 1200)  # after the first failure while starting, the second, ...; SLURM itself adds two minutes

OURS, SLURMS, UNKNOWN = "ours", "slurm's", "unknown"  # who is to act, by what SLURM says about the job
FINISHED, STOPPED, CRASHED, START_FAILED = "finished", "stopped", "failed in training", "failed while starting"


@dataclass(frozen=True)
class End:
    """How an attempt ended."""

    job_id: str
    attempt: int
    code: int  # srun's exit code
    phase: str = ""  # of this attempt; "" if rank 0 has written nothing
    update: int = 0
    has_checkpoint: bool = False
    has_newer_checkpoint: bool = False  # than when this attempt began to train
    reason: str = ""  # the first exception of a rank
    is_preflight: bool = False  # the reason is a finding of the pre-flight
    nodes: tuple[str, ...] = ()  # that the pre-flight named
    rank: int = 0  # whose log to open

    def kind(self, preemption_code: int) -> str:
        """FINISHED, STOPPED, CRASHED or START_FAILED."""
        if self.phase in (FINISHED, STOPPED):
            return self.phase
        if self.phase == "training":
            return CRASHED if self.code else FINISHED
        if self.code == preemption_code:  # the signal ended a rank that could not note it yet
            return STOPPED
        return START_FAILED if self.code else FINISHED

    def text(self) -> str:
        """As in `exit code 137 (SIGKILL); rank 3 on gpu7: RuntimeError: ...`."""
        code = f"exit code {self.code}"
        if self.code > 128:
            with suppress(ValueError):
                code += f" ({signal.Signals(self.code - 128).name})"
        return "; ".join(part for part in (code if self.code else "", self.reason) if part)


@dataclass(frozen=True)
class Limits:
    """What the recipe allows, and the size of the job."""

    max_requeues: int
    num_nodes: int
    preemption_code: int  # 128 + number of the signal


@dataclass(frozen=True)
class Decision:
    """What follows."""

    restarts: bool
    text: str
    pause_s: int = 0
    exclude: tuple[str, ...] = ()


def decide(end: End, history: Sequence[dict[str, Any]], limits: Limits, *, job: str) -> Decision:
    """What follows when an attempt has ended.

    Args:
        end: how it ended.
        history: records of `attempts.jsonl`, the oldest first; those of other jobs do not count.
        limits: see there.
        job: OURS, SLURMS or UNKNOWN (see `whose`).
    """
    kind = end.kind(limits.preemption_code)
    if kind == FINISHED:
        return Decision(False, "the training is finished")
    if job == SLURMS:
        return Decision(False, "the job was cancelled, or SLURM itself starts it again")
    earlier = [record for record in history if record["job_id"] == end.job_id]
    if kind == START_FAILED and not end.has_checkpoint:
        return Decision(False, "nothing is saved yet: a start that fails at once would fail again")
    is_outside = end.code > 128 or end.is_preflight
    if kind == START_FAILED and not is_outside and not any(record["has_trained"] for record in earlier):
        return Decision(False, "this launch has not trained yet, and the same error would come again")
    count = 1 + _failures_in_a_row(earlier, kind)
    if kind == CRASHED and not end.has_newer_checkpoint and count >= MAX_CRASHES:
        return Decision(False, f"{count} attempts in a row have failed without saving a newer checkpoint")
    if kind == START_FAILED and count >= MAX_START_FAILURES:
        return Decision(False, f"{count} starts in a row have failed")
    if end.attempt >= limits.max_requeues:
        return Decision(False, f"it has started again {end.attempt} times, and --max-requeues is {limits.max_requeues}")
    pause_s = PAUSES_S[min(count, len(PAUSES_S)) - 1] if kind == START_FAILED else 0
    text = "the job starts again from its last checkpoint"
    return Decision(True, text, pause_s, _to_exclude(end.nodes, limits.num_nodes))


def _failures_in_a_row(records: Sequence[dict[str, Any]], kind: str) -> int:
    """How many records are of this kind since a checkpoint was saved."""
    count = 0
    for record in reversed(records):
        if record["has_newer_checkpoint"]:
            break
        count += record["kind"] == kind
    return count


def _to_exclude(nodes: tuple[str, ...], num_nodes: int) -> tuple[str, ...]:
    """The named nodes, unless they are so many that the fault must be elsewhere."""
    return nodes if len(nodes) <= max(1, num_nodes // 2) else ()


def whose(fields: dict[str, str] | None, attempt: int) -> str:
    """Who is to act, by the fields of `scontrol show job`; None: SLURM could not be asked.

    A job that still runs or is at its time limit is ours to start again. One that SLURM has requeued needs no help, one
    that its user has cancelled wants none, and while either is COMPLETING nothing tells them apart.
    """
    if fields is None:
        return UNKNOWN
    if int(fields.get("Restarts", "0")) > attempt:
        return SLURMS
    if fields.get("Reason") == "TimeLimit":
        return OURS
    return OURS if fields.get("JobState") in ("RUNNING", "SUSPENDED", "STOPPED", "TIMEOUT") else SLURMS
