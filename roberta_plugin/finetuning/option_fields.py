"""What the options of all tasks have in common: fields with help texts, and the checks of their values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from roberta_plugin.settings import check_values
from roberta_plugin.settings import setting as option

Stage = Literal["prepare", "score"]


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of a task; the subclasses have them."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: naming the option, the bad value and what would be right.
        """
        check_values(self)

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
    valid: str | None = option(None, "file of the development set", stage="prepare", metavar="FILE")
    test: str | None = option(None, "file of the test set", stage="prepare", metavar="FILE")

    @property
    def files(self) -> dict[str, str]:
        """The files that are named, by split."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in named.items() if name is not None}
