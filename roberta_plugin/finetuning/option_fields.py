"""What the options of all tasks have in common: fields with help texts, and the checks of their values."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

Stage = Literal["prepare", "score"]


def option(default: Any, help_text: str, *, stage: Stage, **more: Any) -> Any:
    """A field that is an option: its help text, the stage it belongs to, and the values that it may have."""
    return field(default=default, metadata={"help": help_text, "stage": stage, **more})


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of a task; the subclasses have them."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: naming the option, the bad value and what would be right.
        """
        for item in fields(self):
            value, least, most = getattr(self, item.name), item.metadata.get("smallest"), item.metadata.get("largest")
            choices = item.metadata.get("choices")
            if value is None:
                continue
            if choices and value not in choices:
                raise ValueError(f"{flag(item)} must be {' or '.join(choices)}, got {value!r}.")
            if most is not None and not least <= value <= most:
                raise ValueError(f"{flag(item)} must be from {least:g} to {most:g}, got {value}.")
            if least is not None and not value >= least:
                raise ValueError(f"{flag(item)} must be {least} or more, got {value}.")

    def given(self, stage: Stage) -> dict[str, Any]:
        """The options of a stage that differ from their defaults, by field name.

        Example:
            SquadOptions(n_best=5, doc_stride=64).given("score")  ->  {"n_best": 5}
        """
        values = {item: getattr(self, item.name) for item in fields(self) if item.metadata["stage"] == stage}
        return {item.name: value for item, value in values.items() if value != item.default}


@dataclass(frozen=True, kw_only=True)
class FileOptions(TaskOptions):
    """Options of a task whose files may have any names."""

    train: str | None = option(
        None, "file in --raw to train on, if its name differs from the usual ones", stage="prepare", metavar="FILE"
    )
    valid: str | None = option(None, "the same for the development set", stage="prepare", metavar="FILE")
    test: str | None = option(None, "the same for the test set", stage="prepare", metavar="FILE")

    @property
    def files(self) -> dict[str, str]:
        """The files that are named, by split."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in named.items() if name is not None}


def flag(item: Field[Any]) -> str:
    """An option as the command line spells it: `doc_stride` -> --doc-stride."""
    return f"--{item.name.replace('_', '-')}"
