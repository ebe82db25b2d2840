"""How this attempt and earlier ones ended -> whether the job restarts.

    stopped after saving (preemption, time limit)     restart
    failed in training, newer checkpoint              restart
    failed in training, no newer checkpoint           restart, at most MAX_CRASHES attempts
    failed while starting, run without a checkpoint   end
    failed while starting, run with a checkpoint      restart after a pause, at most MAX_START_FAILURES attempts
    cancelled, or requeued by SLURM itself            do nothing

An attempt that saves a checkpoint resets both counts; --max-requeues limits all restarts together. Attempts of a job
are numbered from 0, as in SLURM_RESTART_COUNT.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MAX_CRASHES = 3
MAX_START_FAILURES = 5
PAUSES_S = (0, 300, 600, 1200)  # after the first failure while starting, the second, ...; SLURM adds two minutes

OURS, SLURMS, UNKNOWN = "ours", "slurm's", "unknown"  # who restarts the job
FINISHED, STOPPED, CRASHED, START_FAILED = "finished", "stopped", "failed in training", "failed while starting"


@dataclass(frozen=True)
class End:
    """How an attempt ended."""

    job_id: str
    attempt: int
    code: int  # srun's exit code
    phase: str = ""  # last phase of this attempt; "" if rank 0 wrote nothing
    update: int = 0
    has_checkpoint: bool = False
    has_newer_checkpoint: bool = False  # than when this attempt began to train
    reason: str = ""  # the first exception of a rank
    is_preflight: bool = False  # whether the reason comes from the pre-flight
    nodes: tuple[str, ...] = ()  # named by the pre-flight, or with a rank that hangs
    node: int = 0  # the one whose log to open, by its number within the job

    def kind(self, preemption_code: int) -> str:
        """FINISHED, STOPPED, CRASHED or START_FAILED."""
        if self.phase in (FINISHED, STOPPED):
            return self.phase
        if self.phase == "training":
            return CRASHED if self.code else FINISHED
        if self.code == preemption_code:  # the signal ended a rank before its handler was installed
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
    """The recipe's limits, and the size of the job."""

    max_requeues: int
    num_nodes: int
    preemption_code: int  # 128 + number of the signal


@dataclass(frozen=True)
class Decision:
    """Whether the job restarts, why, after how many seconds, and without which nodes."""

    restarts: bool
    text: str
    pause_s: int = 0
    exclude: tuple[str, ...] = ()


def decide(end: End, history: Sequence[dict[str, Any]], limits: Limits, *, job: str) -> Decision:
    """Decide whether the job restarts.

    Args:
        end: how the attempt ended.
        history: records of `attempts.jsonl`, oldest first; records of other jobs are ignored.
        limits: the recipe's.
        job: OURS, SLURMS or UNKNOWN (see `whose`).
    """
    kind = end.kind(limits.preemption_code)
    if kind == FINISHED:
        return Decision(False, "the training is finished")
    if job == SLURMS:
        return Decision(False, "the job was cancelled, or SLURM itself restarts it")
    earlier = [record for record in history if record["job_id"] == end.job_id]
    if kind == START_FAILED and not end.has_checkpoint:
        return Decision(False, "it failed before the first checkpoint, and the same start would fail again")
    is_outside = end.code > 128 or end.is_preflight
    if kind == START_FAILED and not is_outside and not any(record["has_trained"] for record in earlier):
        return Decision(False, "this launch has not trained yet, and the same start would fail again")
    count = 1 + _failures_in_a_row(earlier, kind)
    if kind == CRASHED and not end.has_newer_checkpoint and count >= MAX_CRASHES:
        return Decision(False, f"{count} attempts in a row have failed without saving a newer checkpoint")
    if kind == START_FAILED and count >= MAX_START_FAILURES:
        return Decision(False, f"{count} starts in a row have failed")
    if end.attempt >= limits.max_requeues:
        return Decision(False, f"it has restarted {end.attempt} times, and --max-requeues is {limits.max_requeues}")
    pause_s = PAUSES_S[min(count, len(PAUSES_S)) - 1] if kind == START_FAILED else 0
    text = "the job restarts from its last checkpoint"
    return Decision(True, text, pause_s, _to_exclude(end.nodes, limits.num_nodes))


def _failures_in_a_row(records: Sequence[dict[str, Any]], kind: str) -> int:
    """Number of records of this kind since an attempt last saved a checkpoint."""
    count = 0
    for record in reversed(records):
        if record["has_newer_checkpoint"]:
            break
        count += record["kind"] == kind
    return count


def _to_exclude(nodes: tuple[str, ...], num_nodes: int) -> tuple[str, ...]:
    """The named nodes; none if there are so many that the cause must lie elsewhere."""
    return nodes if len(nodes) <= max(1, num_nodes // 2) else ()


def whose(fields: dict[str, str] | None, attempt: int) -> str:
    """Who restarts the job, by the fields of `scontrol show job` (None: SLURM could not be asked).

    We restart a job that still runs or has reached its time limit. We leave alone a job that SLURM has requeued or its
    user has cancelled; in the state COMPLETING the two look the same.
    """
    if fields is None:
        return UNKNOWN
    if int(fields.get("Restarts", "0")) > attempt:
        return SLURMS
    if fields.get("Reason") == "TimeLimit":
        return OURS
    return OURS if fields.get("JobState") in ("RUNNING", "SUSPENDED", "STOPPED", "TIMEOUT") else SLURMS
