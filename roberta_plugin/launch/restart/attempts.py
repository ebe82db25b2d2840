"""Read from the run folder how an attempt ended; keep the record of all attempts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .policy import FINISHED, STOPPED, Decision, End, Limits

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
    """Whether a checkpoint is newer than the start of training; the file server's clock sets both times."""
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
    rank: int | None,
    host: str,
    error: BaseException,
    node: int = 0,
    nodes: Sequence[str] = (),
    is_preflight: bool = False,
) -> None:
    """On any rank: note why it failed. Only the first failure of an attempt is kept: it causes the others.

    Args:
        output_dir: the run's folder.
        job_id: the job.
        attempt: its attempt.
        rank: this rank; None before there are ranks.
        host: its node.
        error: the exception.
        node: number of its node within the job, by which the log is called.
        nodes: the nodes at fault, as far as known: named by the pre-flight, or with a rank that hangs.
        is_preflight: whether the error comes from the pre-flight.
    """
    path = failure_path(output_dir, job_id, attempt)
    path.parent.mkdir(exist_ok=True)
    who = host if rank is None else f"rank {rank} on {host}"
    reason = f"{who}: {type(error).__name__}: {error}"
    content = {"rank": rank, "node": node, "reason": reason, "is_preflight": is_preflight, "nodes": list(nodes)}
    own = path.with_name(f".{path.name}.{node if rank is None else rank}.tmp")
    own.write_text(json.dumps(content), encoding="utf-8")
    with suppress(FileExistsError):
        os.link(own, path)  # unlike a rename, a link fails if the file exists
    own.unlink()


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
