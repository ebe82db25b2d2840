"""What the run folder says about an attempt, and the record of all attempts."""

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
    """How the attempt ended, from the files of its ranks."""
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
        rank=int(failure.get("rank", 0)),
    )


def _is_newer(checkpoints: Sequence[Path], started: Path, job_id: str, attempt: int) -> bool:
    """Whether a checkpoint was written after this attempt began to train; both clocks are the file server's."""
    mark = _read(started)
    if (mark.get("job_id"), mark.get("attempt")) != (job_id, attempt):
        return False
    since = started.stat().st_mtime_ns
    return any(path.stat().st_mtime_ns > since for path in checkpoints)


def note_start(output_dir: Path, *, job_id: str, attempt: int) -> None:
    """Rank 0: the checkpoints are in order, the training begins."""
    _write(output_dir / STARTED_FILE, {"job_id": job_id, "attempt": attempt})


def note_failure(
    output_dir: Path,
    *,
    job_id: str,
    attempt: int,
    rank: int,
    host: str,
    error: BaseException,
    nodes: Sequence[str] | None,
) -> None:
    """Any rank: why it fails. Of an attempt only the first one is kept: the others fail in its wake.

    Args:
        output_dir: the run's folder.
        job_id: the job.
        attempt: its attempt.
        rank: this rank.
        host: its node.
        error: what it has raised.
        nodes: for a finding of the pre-flight the nodes that it named, else None.
    """
    path = failure_path(output_dir, job_id, attempt)
    path.parent.mkdir(exist_ok=True)
    reason = f"rank {rank} on {host}: {type(error).__name__}: {error}"
    content = {"rank": rank, "reason": reason, "is_preflight": nodes is not None, "nodes": list(nodes or ())}
    own = path.with_name(f".{path.name}.{rank}.tmp")
    own.write_text(json.dumps(content), encoding="utf-8")
    with suppress(FileExistsError):
        os.link(own, path)  # unlike a rename, this fails where there is one
    own.unlink()


def failure_path(output_dir: Path, job_id: str, attempt: int) -> Path:
    """Where the first failure of an attempt is noted."""
    return output_dir / FAILURES / f"{job_id}_{attempt}.json"


def read_attempts(output_dir: Path) -> list[dict[str, Any]]:
    """The records of attempts.jsonl, the oldest first; a line that a kill has cut off is left out."""
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
        "log": f"logs/{end.job_id}_{end.rank}_log.err",
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
