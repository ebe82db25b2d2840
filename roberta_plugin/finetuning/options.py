"""What a user can change about the preparation and the scoring of a task: one dataclass for each benchmark.

`roberta prepare`, `roberta finetune` and `roberta evaluate` make their options from the fields, `question_length`
becomes --question-length, with the help text that stands here. In Python, pass the dataclass:

    PrepareSettings(task="squad2", ..., options=SquadOptions(doc_stride=64))

None stands for "not given": a new folder is then prepared with the paper's value, and a folder that exists is used
with the value it was prepared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal

Stage = Literal["prepare", "score"]


def _option(default: Any, help_text: str, *, stage: Stage, **more: Any) -> Any:
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
class GlueOptions(TaskOptions):
    """GLUE's tasks have no options."""


@dataclass(frozen=True, kw_only=True)
class SquadOptions(TaskOptions):
    """Options of squad1 and squad2."""

    question_length: int | None = _option(
        None, "tokens of a question; longer ones are cut (64)", stage="prepare", smallest=1
    )
    doc_stride: int | None = _option(
        None, "tokens of the passage between the starts of two windows (128)", stage="prepare", smallest=1
    )
    strict: bool = _option(
        False, "refuse answers that are not at their answer_start, instead of looking for them", stage="prepare"
    )
    train: str | None = _option(
        None, "file in --raw to train on, if its name differs from the official one", stage="prepare", metavar="FILE"
    )
    valid: str | None = _option(None, "the same for the development set", stage="prepare", metavar="FILE")
    test: str | None = _option(None, "the same for the test set", stage="prepare", metavar="FILE")
    n_best: int | None = _option(None, "candidate answers written for each question (20)", stage="score", smallest=1)
    max_answer_length: int | None = _option(None, "most tokens of an answer (30)", stage="score", smallest=1)
    null_threshold: float | None = _option(
        None,
        "probability of no answer, from 0 to 1, above which a question is left unanswered (default: the threshold "
        "with the best F1 on the development set)",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
        tasks=("squad2",),
    )

    @property
    def files(self) -> dict[str, str]:
        """Files that have other names than the official ones, by split."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in named.items() if name is not None}


@dataclass(frozen=True, kw_only=True)
class RaceOptions(TaskOptions):
    """Options of race and multiple_choice."""

    question_length: int | None = _option(
        None, "tokens of question and option together; longer ones are cut (128)", stage="prepare", smallest=1
    )
    order: str | None = _option(
        None,
        "which text comes first in the model's input (passage); checkpoints of fairseq's sentence_ranking need "
        "question",
        stage="prepare",
        choices=("passage", "question"),
    )


# Kinds of own data, as --kind names them; `pair` is a classification of two texts.
OWN_KINDS = ("classification", "multi-label", "regression", "pair", "multiple-choice")


@dataclass(frozen=True, kw_only=True)
class CustomOptions(TaskOptions):
    """Options of custom: tables of your own."""

    kind: str | None = _option(None, "what is learned (classification)", stage="prepare", choices=OWN_KINDS)
    train: str | None = _option(
        None,
        "table to train on: .csv, .tsv, .jsonl or .parquet, also .gz, .zst, .xz, .bz2; relative to --raw, if given",
        stage="prepare",
        metavar="FILE",
    )
    valid: str | None = _option(
        None, "the same for development (default: a share of --train)", stage="prepare", metavar="FILE"
    )
    test: str | None = _option(
        None, "the same for the test set; it may lack the label column", stage="prepare", metavar="FILE"
    )
    text_column: str | None = _option(None, "column of the text (text)", stage="prepare", metavar="COLUMN")
    text_pair_column: str | None = _option(
        None, "column of a second text; with multiple-choice, of the question", stage="prepare", metavar="COLUMN"
    )
    label_column: tuple[str, ...] | None = _option(
        None,
        "column of the label or number (label); with multi-label, of a list of labels, or one column of 0 and 1 for "
        "each label",
        stage="prepare",
        metavar="COLUMN",
        nargs="+",
    )
    choices_columns: tuple[str, ...] | None = _option(
        None,
        "multiple-choice: columns of the options, or one column of lists (options)",
        stage="prepare",
        metavar="COLUMN",
        nargs="+",
    )
    id_column: str | None = _option(
        None, "column of the ids in the prediction files (default: the line number)", stage="prepare", metavar="COLUMN"
    )
    labels: tuple[str, ...] | None = _option(
        None,
        "the labels in the order of their numbers (default: those found, sorted)",
        stage="prepare",
        metavar="LABEL",
        nargs="+",
    )
    delimiter: str | None = _option(
        None, "what separates the columns of .csv, such as ';' (a comma)", stage="prepare", metavar="CHARACTER"
    )
    label_separator: str | None = _option(
        None, "multi-label: what separates the labels of a row (a comma)", stage="prepare", metavar="TEXT"
    )
    valid_share: float | None = _option(
        None,
        "without --valid: share of the texts of --train that is cut off as development set, by a hash of the text "
        "(0.1)",
        stage="prepare",
        smallest=0.001,
        largest=0.999,
        metavar="SHARE",
    )
    fold: str | None = _option(
        None,
        "part K of N of the texts of --train is the development set; `roberta finetune --folds` prepares all",
        stage="prepare",
        metavar="K/N",
    )
    class_weights: str | None = _option(
        None,
        "weights of the labels in the loss: none, or balanced: inversely proportional to their frequency (none)",
        stage="prepare",
        choices=("none", "balanced"),
    )
    threshold: float | None = _option(
        None,
        "multi-label: probability from 0 to 1 from which a label is predicted (default: the threshold with the best "
        "micro-F1 on the development set)",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )

    def __post_init__(self) -> None:
        """Check the values, and which of them go together.

        Values may be those that a prepared folder records: lists instead of tuples, and multi_label for multi-label.

        Raises:
            ValueError: naming the option, the bad value and what would be right.
        """
        for name in ("label_column", "choices_columns", "labels"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(map(str, value)) or None)
        if self.kind is not None:
            object.__setattr__(self, "kind", self.kind.replace("_", "-"))
        super().__post_init__()
        kind = self.kind or "classification"
        of_kinds = {
            "choices_columns": ("multiple-choice",),
            "label_separator": ("multi-label",),
            "threshold": ("multi-label",),
            "labels": ("classification", "pair", "multi-label", "multiple-choice"),
        }
        for name, kinds in of_kinds.items():
            if self.kind is not None and getattr(self, name) is not None and kind not in kinds:
                raise ValueError(f"--{name.replace('_', '-')} goes with --kind {' or '.join(kinds)}, not {kind}.")
        if self.class_weights == "balanced" and kind not in ("classification", "pair", "multi-label"):
            raise ValueError(f"--class-weights balanced goes with labels, and --kind {kind} has none of its own.")
        if kind == "pair" and self.text_pair_column is None:
            raise ValueError("--kind pair needs --text-pair-column: the column of the second text.")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ValueError(f"--delimiter must be one character, got {self.delimiter!r}.")
        if len(self.label_column or ()) > 1 and kind != "multi-label":
            raise ValueError(f"--label-column takes one column with --kind {kind}; several go with multi-label.")
        for name in ("labels", "label_column", "choices_columns"):
            values = getattr(self, name) or ()
            if len(set(values)) != len(values):
                raise ValueError(f"--{name.replace('_', '-')} {' '.join(values)}: one of them occurs twice.")
        if self.fold is not None:
            self.part()
        cut_by = [name for name in ("valid", "valid_share", "fold") if getattr(self, name) is not None]
        if len(cut_by) > 1:
            named = " and ".join(f"--{name.replace('_', '-')}" for name in cut_by)
            raise ValueError(f"{named} both say what the development set is: give one of them.")

    @property
    def files(self) -> dict[str, str]:
        """The tables by split."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in named.items() if name is not None}

    def part(self) -> tuple[int, int]:
        """Which part is the development set, and of how many.

        Example:
            CustomOptions(fold="2/5").part()  ->  (2, 5)

        Raises:
            ValueError: if --fold does not say it.
        """
        number, separator, total = (self.fold or "").partition("/")
        if not separator or not number.isdecimal() or not total.isdecimal() or not 1 <= int(number) <= int(total) != 1:
            raise ValueError(f"--fold must be a part and their number, such as 2/5, got {self.fold!r}.")
        return int(number), int(total)


# benchmark -> its options; the tasks of a benchmark are in `benchmarks.BENCHMARKS`
OPTIONS: dict[str, type[TaskOptions]] = {
    "glue": GlueOptions,
    "squad": SquadOptions,
    "race": RaceOptions,
    "custom": CustomOptions,
}


def flag(item: Field[Any]) -> str:
    """An option as the command line spells it: `doc_stride` -> --doc-stride."""
    return f"--{item.name.replace('_', '-')}"


def fields_of(benchmark: str, task: str, *, stages: Iterable[Stage]) -> list[Field[Any]]:
    """The options that a task has in some stages."""
    return [
        item
        for item in fields(OPTIONS[benchmark])
        if item.metadata["stage"] in stages and task in item.metadata.get("tasks", (task,))
    ]
