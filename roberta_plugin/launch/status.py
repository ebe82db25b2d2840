"""Progress of a run: launch.json and status.json in its folder, which `roberta jobs` reads.

Attempts of a job are numbered from 0, as in SLURM_RESTART_COUNT.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.restart import STATUS_FILE
from roberta_plugin.signs_of_life import Slowest

LAUNCH_FILE = "launch.json"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The submission of a run (launch.json)."""

    job_id: str | None
    name: str
    num_gpus: int
    batch_sequences: int | None
    batch_tokens: int | None
    snapshot: str
    arguments: tuple[str, ...] = ()  # of fairseq-train
    changes: tuple[str, ...] = ()  # of settings since the run began, each accepted by --accept-changes

    @classmethod
    def of(cls, recipe: LaunchSettings, **more: Any) -> Launch:
        """That of a recipe; `more` are the fields that it does not tell."""
        return cls(
            name=recipe.job_name,
            num_gpus=recipe.num_gpus,
            batch_sequences=recipe.batch_sequences,
            batch_tokens=recipe.batch_tokens,
            **more,
        )

    def __post_init__(self) -> None:
        """Make tuples of the lists that JSON has."""
        for name in ("arguments", "changes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Status:
    """The training as rank 0 last saw it."""

    job_id: str
    attempt: int
    phase: str  # starting, training, stopped, finished; without SLURM also failed
    update: int
    max_update: int
    loss: float | None
    tokens_per_second: float | None
    updates_per_second: float | None
    time: float  # seconds since 1970
    num_gpus: int | None = None  # that train now, of those of launch.json
    mfu: float | None = None  # percent of the GPUs' peak
    slowest: Slowest | None = None  # the straggler, if there are several ranks

    def __post_init__(self) -> None:
        """Make a `Slowest` of the list that JSON has."""
        if self.slowest is not None:
            object.__setattr__(self, "slowest", Slowest(*self.slowest))

    @property
    def seconds_left(self) -> float | None:
        """Time for the remaining updates at the present speed."""
        if not self.updates_per_second or self.max_update <= 0:
            return None
        return max(0, self.max_update - self.update) / self.updates_per_second


Record = TypeVar("Record", Launch, Status)


def write_launch(output_dir: Path, launch: Launch) -> None:
    """Write launch.json."""
    _write(output_dir / LAUNCH_FILE, launch)


def read_launch(output_dir: Path) -> Launch | None:
    """Read the last submission of a run folder; None if there is none."""
    return _read(output_dir / LAUNCH_FILE, Launch)


def write_status(output_dir: Path, status: Status) -> None:
    """Write status.json."""
    _write(output_dir / STATUS_FILE, status)


def read_status(output_dir: Path) -> Status | None:
    """Read the status that rank 0 last wrote; None if it has not written any."""
    return _read(output_dir / STATUS_FILE, Status)


def find_runs(folder: Path, *, by: str = LAUNCH_FILE) -> list[Path]:
    """Run folders in `folder` (which may be one itself), down to three levels: those that hold the file `by`."""
    patterns = ("", "*/", "*/*/", "*/*/*/")
    return sorted({path.parent for pattern in patterns for path in folder.glob(f"{pattern}{by}")})


def attempt() -> int:
    """The number of restarts of this job by SLURM or torchrun."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def _write(path: Path, record: Launch | Status) -> None:
    write_json(path, dataclasses.asdict(record))


def _read(path: Path, record: type[Record]) -> Record | None:
    fields = dataclasses.fields(record)
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    remedy = "remove it, only `roberta jobs` needs it"
    if record is Launch:
        remedy = "remove it when the run's job has ended; the next launch then compares its settings with none"
    values = read_json(path, keys=required, remedy=remedy)
    if values is None:
        return None
    return record(**{field.name: values[field.name] for field in fields if field.name in values})
