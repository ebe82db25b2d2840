"""The folder of one training: what it was made from, how far it is, and which of its checkpoints is the result.

    run.json       made from: `RunRecord`, with the choice of the checkpoint
    result.json    the metric of a finished run        failure.json   why the last attempt failed
    lock           held by its fairseq-train           checkpoints/   a stopped run resumes from the last one
    outputs/       raw outputs of the chosen checkpoint, of a fine-tuning

A run of a sweep is in ROOT/CELL/seed-N, a run of a fine-tuning in OUTPUT_DIR/runs/CELL/seed-N. `launch/` writes
these files and starts the trainings; whoever reads a trained model finds it here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.locks import is_locked

RUN, RESULT, FAILURE, LOCK, OUTPUTS = "run.json", "result.json", "failure.json", "lock", "outputs"
CHECKPOINTS = "checkpoints"
RUNS = "runs"  # the sweep in the folder of a fine-tuning
DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "waiting"
REMEDY = "delete it when the run's job has ended, and give the command again: the run resumes from its checkpoints"
Choice = Literal["best", "last"]
FILES: Mapping[Choice, str] = {"best": "checkpoint_best.pt", "last": "checkpoint_last.pt"}
_SEED = "seed-"


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The settings that a run was made from (run.json)."""

    arguments: tuple[str, ...]  # of fairseq-train
    sweep: str = ""  # folder of the sweep
    cell: str = ""
    seed: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""  # the choice; earlier versions do not say it
    num_gpus: int = 0
    batch_sequences: int | None = None
    batch_tokens: int | None = None
    snapshot: str = ""
    folder: str = ""  # the current one, from which relative paths go
    asked: Mapping[str, Any] = field(default_factory=dict)  # what the arguments follow from (`LaunchSettings`)
    changes: tuple[str, ...] = ()  # of settings since the run began, each accepted by --accept-changes

    def __post_init__(self) -> None:
        """Make tuples of the lists that JSON has."""
        for name in ("arguments", "changes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


def write_record(folder: Path, record: RunRecord) -> None:
    """Write run.json."""
    write_json(folder / RUN, {name: value for name, value in asdict(record).items() if value})


def read_record(folder: Path) -> RunRecord | None:
    """The settings that the run in a folder was made from; None if there is no run."""
    fields = dataclasses.fields(RunRecord)
    values = read_json(folder / RUN, keys=["arguments"], remedy=REMEDY, hints=get_type_hints(RunRecord))
    return None if values is None else RunRecord(**{one.name: values[one.name] for one in fields if one.name in values})


class RunFiles:
    """The folder of a run, which may hold nothing yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def around(cls, path: Path) -> RunFiles:
        """The run of a checkpoint, of its folder of checkpoints, or of the run's own folder."""
        folder = path.parent if path.suffix == ".pt" else path
        return cls(folder.absolute().parent if folder.name == CHECKPOINTS else folder)

    @property
    def output_dir(self) -> Path | None:
        """The folder of the fine-tuning that the run belongs to; None if it belongs to none."""
        root = self.path.absolute().parent.parent
        return root.parent if self.path.name.startswith(_SEED) and root.name == RUNS else None

    @property
    def outputs(self) -> Path:
        """Where the raw outputs of its chosen checkpoint are stored."""
        return self.path / OUTPUTS

    def record(self) -> RunRecord | None:
        """The settings that the run was made from; None before it has begun."""
        return read_record(self.path)

    def result(self) -> dict[str, Any] | None:
        """The content of result.json: `value`, `num_updates`, `seconds`; None before the run is done."""
        return read_json(self.path / RESULT, keys=["value"], remedy=REMEDY)

    def failure(self) -> dict[str, Any] | None:
        """The content of failure.json: `reason`, `exit_code`, `attempts`."""
        return read_json(self.path / FAILURE, keys=(), remedy=REMEDY)

    def state(self) -> str:
        """The state of the run: done, running (here or elsewhere), failed or waiting."""
        if (self.path / RESULT).is_file():
            return DONE
        if is_locked(self.path / LOCK):
            return RUNNING
        return FAILED if (self.path / FAILURE).is_file() else WAITING

    def choice(self) -> Choice:
        """Which checkpoint is the result: the best one by its metric, unless the record says otherwise."""
        record = read_json(self.path / RUN, keys=(), remedy=REMEDY) or {}
        if "arguments" not in record:  # another program's file
            return "best"
        return "last" if (record.get("checkpoint") or self.measured()) == "last" else "best"

    def measured(self) -> str | None:
        """The choice that the result of a finished run is about; None before it is done, or if it does not say so."""
        metric = (self.result() or {}).get("metric")
        return metric.get("at") if isinstance(metric, Mapping) else None

    def checkpoints(self) -> list[Path]:
        """All of its checkpoints."""
        return sorted((self.path / CHECKPOINTS).glob("checkpoint*.pt"))

    def chosen_checkpoint(self) -> Path:
        """The checkpoint that is the result of the run, by its choice.

        Its weights may be gone. A training without validations has no best checkpoint: there it is the last one.
        """
        chosen, last = (self.path / CHECKPOINTS / FILES[choice] for choice in (self.choice(), "last"))
        return last if last.is_file() and not chosen.is_file() else chosen

    def has_weights(self) -> bool:
        """True if the chosen checkpoint is there."""
        return self.chosen_checkpoint().is_file()
