"""Decides, when the ranks of a job have ended, whether to requeue the job.

    run folder -> how the attempt ended                read_end
    how this attempt and earlier ones ended -> what follows    decide, a pure function
    what follows -> SLURM's commands, and a record     carry_out

    stopped after saving (preemption, time limit)     restart
    failed in training, newer checkpoint              restart
    failed in training, no newer checkpoint           restart, at most MAX_CRASHES attempts
    failed while starting, run without a checkpoint   end
    failed while starting, run with a checkpoint      restart after a pause, at most MAX_START_FAILURES attempts
    cancelled, or requeued by SLURM itself            do nothing

An attempt that saves a checkpoint resets both counts; --max-requeues limits all restarts together. Attempts of a job
are numbered from 0, as in SLURM_RESTART_COUNT.

The batch script runs this file with `python -I` after srun, on the first node and outside of any container. It
therefore uses the standard library only (Python 3.8 or newer), imports nothing else of this package, and does not
assume that the ranks can reach SLURM. It reads and writes these files in the run folder:

    status.json                the phase rank 0 wrote last: starting, training, stopped (and saved) or finished
    training_started.json      written by rank 0 once the checkpoints are in order: newer checkpoints are progress
    failures/JOB_ATTEMPT.json  the first exception of a rank, and the nodes at fault, as far as known
    attempts.jsonl             how each attempt ended and what followed; `roberta jobs` shows the last one
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MAX_CRASHES = 3
MAX_START_FAILURES = 5
PAUSES_S = (0, 300, 600, 1200)  # after the first failure while starting, the second, ...; SLURM adds two minutes

OURS, SLURMS, UNKNOWN = "ours", "slurm's", "unknown"  # who restarts the job
FINISHED, STOPPED, CRASHED, START_FAILED = "finished", "stopped", "failed in training", "failed while starting"
LEFT_ALONE = "the job was cancelled, or SLURM itself restarts it"


@dataclass(frozen=True)
class End:
    """The end of an attempt."""

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
    node: int = 0  # node of the log to open, by its number within the job

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
        """A description such as `exit code 137 (SIGKILL); rank 3 on gpu7: RuntimeError: ...`."""
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
    """Return whether the job restarts, the reason, the delay in seconds, and the nodes to exclude."""

    restarts: bool
    text: str
    pause_s: int = 0
    exclude: tuple[str, ...] = ()


def decide(end: End, history: Sequence[dict[str, Any]], limits: Limits, *, job: str) -> Decision:
    """Decide whether the job restarts."""
    kind = end.kind(limits.preemption_code)
    if kind == FINISHED:
        return Decision(False, "the training is finished")
    if job == SLURMS:
        return Decision(False, LEFT_ALONE)
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
    is_their_fault = len(end.nodes) <= max(1, limits.num_nodes // 2)  # else the cause is elsewhere
    return Decision(True, text, pause_s, end.nodes if is_their_fault else ())


def _failures_in_a_row(records: Sequence[dict[str, Any]], kind: str) -> int:
    """Number of records of this kind since an attempt last saved a checkpoint."""
    count = 0
    for record in reversed(records):
        if record["has_newer_checkpoint"]:
            break
        count += record["kind"] == kind
    return count


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


STATUS_FILE = "status.json"
STARTED_FILE = "training_started.json"
FAILURES = "failures"
ATTEMPTS_FILE = "attempts.jsonl"


def read_end(output_dir: Path, *, job_id: str, attempt: int, code: int) -> End:
    """Read how the attempt ended from the files that its ranks wrote."""
    status = _read(output_dir / STATUS_FILE)
    is_this = (status.get("job_id"), status.get("attempt")) == (job_id, attempt)
    failure = _read(failure_path(output_dir, job_id, attempt))
    checkpoints = [path for path in (output_dir / "checkpoints").glob("checkpoint*.pt")]
    return End(
        job_id=job_id,
        attempt=attempt,
        code=code,
        phase=str(status.get("phase", "")) if is_this else "",
        update=int(status.get("update", 0)) if is_this else 0,
        has_checkpoint=bool(checkpoints),
        has_newer_checkpoint=_is_newer(checkpoints, output_dir / STARTED_FILE, job_id, attempt),
        reason=str(failure.get("reason", "")),
        is_preflight=bool(failure.get("is_preflight")),
        nodes=tuple(failure.get("nodes", ())),
        node=int(failure.get("node", 0)),
    )


def _is_newer(checkpoints: Sequence[Path], started: Path, job_id: str, attempt: int) -> bool:
    """True if a checkpoint is newer than the start of training; the file server's clock sets both times."""
    mark = _read(started)
    if (mark.get("job_id"), mark.get("attempt")) != (job_id, attempt):
        return False
    since = started.stat().st_mtime_ns
    return any(path.stat().st_mtime_ns > since for path in checkpoints)


def note_start(output_dir: Path, *, job_id: str, attempt: int) -> None:
    """On rank 0: note that the checkpoints are in order and training begins."""
    _write(output_dir / STARTED_FILE, {"job_id": job_id, "attempt": attempt})


def note_failure(
    output_dir: Path,
    *,
    job_id: str,
    attempt: int,
    rank: int,
    host: str,
    error: BaseException,
    node: int = 0,
    nodes: Sequence[str] = (),
    is_preflight: bool = False,
) -> None:
    """On any rank: note why it failed. Only the first failure of an attempt is kept: it causes the others.

    `node` is the number of its node within the job, as in the log's name; `nodes` are those at fault, as far as known.
    """
    path = failure_path(output_dir, job_id, attempt)
    path.parent.mkdir(exist_ok=True)
    reason = f"rank {rank} on {host}: {type(error).__name__}: {error}"
    content = {"rank": rank, "node": node, "reason": reason, "is_preflight": is_preflight, "nodes": list(nodes)}
    temporary = path.with_name(f".{path.name}.{rank}.tmp")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    with suppress(FileExistsError):
        os.link(temporary, path)  # unlike a rename, a link fails if the file exists
    temporary.unlink()


def failure_path(output_dir: Path, job_id: str, attempt: int) -> Path:
    """File with the first failure of an attempt."""
    return output_dir / FAILURES / f"{job_id}_{attempt}.json"


def read_attempts(output_dir: Path) -> list[dict[str, Any]]:
    """The records of attempts.jsonl, oldest first; a line that a kill cut off is skipped."""
    try:
        lines = (output_dir / ATTEMPTS_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"job_id", "kind", "has_newer_checkpoint", "has_trained"} <= record.keys():
            records.append(record)
    return records


def write_attempt(output_dir: Path, end: End, decision: Decision, limits: Limits) -> None:
    """Add a record to attempts.jsonl."""
    record = {
        **asdict(end),
        "kind": end.kind(limits.preemption_code),
        "has_trained": end.phase in ("training", STOPPED, FINISHED),
        "reason": end.text(),
        "restarts": decision.restarts,
        "then": decision.text,
        "excluded": list(decision.exclude),
        "log": f"logs/{end.job_id}_{end.node}_log.out",
        "time": time.time(),
    }
    path = output_dir / ATTEMPTS_FILE
    is_cut_off = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with open(path, "a", encoding="utf-8") as file:
        file.write(("\n" if is_cut_off else "") + json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


PATIENCE_S = (
    3600.0  # to wait for a controller that does not answer; until it does, no other job can use the nodes either
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
        return 0  # srun's own code is ignored: it may have waited for a rank whose daemon had died
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command of the batch script; its exit code is the job's."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # SLURM's, to all processes of a requeued job
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description="Requeue the job, or say why not.")
    parser.add_argument("--output-dir", type=Path, required=True)
    for name in ("code", "num-nodes", "max-requeues", "preemption-code"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args(arguments)
    job_id, attempt = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    end = read_end(args.output_dir, job_id=job_id, attempt=attempt, code=args.code)
    limits = Limits(args.max_requeues, args.num_nodes, args.preemption_code)
    return int(carry_out(end, limits, output_dir=args.output_dir, slurm=Slurm(_say), say=_say))


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} | restart | {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
