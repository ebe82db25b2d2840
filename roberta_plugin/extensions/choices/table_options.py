"""Options of tables of questions with options."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.options import TaskOptions, of_kinds, option, set_texts


@dataclass(frozen=True, kw_only=True)
class ChoiceTableOptions(TaskOptions):
    """Options of `roberta prepare custom`."""

    choices_columns: tuple[str, ...] | None = option(
        "multiple-choice: columns of the options, or one column of lists",
        default_text="options",
        goes_with=of_kinds("multiple-choice"),
        metavar="COLUMN",
        nargs="+",
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_texts(self, "choices_columns")
        super().__post_init__()
