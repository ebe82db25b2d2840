"""How far a run is: two small files in its folder, written by the launch and by rank 0, read by `roberta jobs`.

Attempts of a job are numbered from 0; SLURM counts them too, in SLURM_RESTART_COUNT.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from roberta_plugin.data.atomic_files import atomic_write

from .json_files import read_json
from .restart.attempts import STATUS_FILE

LAUNCH_FILE = "launch.json"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What was submitted."""

    job_id: str | None
    name: str
    num_gpus: int
    batch_sequences: int | None
    batch_tokens: int | None
    snapshot: str
    arguments: tuple[str, ...] = ()  # of fairseq-train
    changes: tuple[str, ...] = ()  # of settings since the run began, each accepted by --accept-changes

    def __post_init__(self) -> None:
        """JSON has lists only."""
        for name in ("arguments", "changes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Status:
    """What rank 0 last said about the training."""

    job_id: str
    attempt: int
    phase: str  # starting, training, stopped, finished
    update: int
    max_update: int
    loss: float | None
    tokens_per_second: float | None
    updates_per_second: float | None
    time: float  # seconds since 1970

    @property
    def seconds_left(self) -> float | None:
        """How long the rest of the updates will take at the present speed."""
        if not self.updates_per_second or self.max_update <= 0:
            return None
        return max(0, self.max_update - self.update) / self.updates_per_second


Record = TypeVar("Record", Launch, Status)


def write_launch(run_dir: Path, launch: Launch) -> None:
    """Note what was submitted for a run folder."""
    _write(run_dir / LAUNCH_FILE, launch)


def read_launch(run_dir: Path) -> Launch | None:
    """What was last submitted for a run folder, None if nothing was."""
    return _read(run_dir / LAUNCH_FILE, Launch)


def write_status(run_dir: Path, status: Status) -> None:
    """Note how far the run is."""
    _write(run_dir / STATUS_FILE, status)


def read_status(run_dir: Path) -> Status | None:
    """How far the run was when rank 0 last wrote, None if it never did."""
    return _read(run_dir / STATUS_FILE, Status)


def find_runs(folder: Path) -> list[Path]:
    """The run folders in `folder`, itself included, down to three levels."""
    patterns = ("", "*/", "*/*/", "*/*/*/")
    return sorted({path.parent for pattern in patterns for path in folder.glob(f"{pattern}{LAUNCH_FILE}")})


def attempt() -> int:
    """How many times SLURM has started this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT", 0))


def _write(path: Path, record: Launch | Status) -> None:
    with atomic_write(path, "w") as file:
        json.dump(dataclasses.asdict(record), file, indent=1)


def _read(path: Path, record: type[Record]) -> Record | None:
    fields = dataclasses.fields(record)
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    values = read_json(path, keys=required, remedy="remove it, it is only for show")
    if values is None:
        return None
    return record(**{field.name: values[field.name] for field in fields if field.name in values})
