"""What a user can change about own data: the options of `roberta prepare custom` (`finetuning/options.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.option_fields import FileOptions
from roberta_plugin.kinds import OWN
from roberta_plugin.settings import setting as option

# Kinds of own data, as --kind names them; `pair` is a classification of two texts.
OWN_KINDS = (*(name.replace("_", "-") for name in OWN), "pair")


@dataclass(frozen=True, kw_only=True)
class CustomOptions(FileOptions):
    """Options of custom: tables of your own."""

    kind: str | None = option(None, "what is learned (classification)", stage="prepare", choices=OWN_KINDS)
    train: str | None = option(
        None,
        "table to train on: .csv, .tsv, .jsonl or .parquet, also .gz, .zst, .xz, .bz2 (tagging: .jsonl, .parquet, or "
        "CoNLL columns); relative to --raw, if given",
        stage="prepare",
        metavar="FILE",
    )
    valid: str | None = option(
        None, "table of the development set (default: a share of --train)", stage="prepare", metavar="FILE"
    )
    test: str | None = option(
        None, "table of the test set, which may lack the label column", stage="prepare", metavar="FILE"
    )
    text_column: str | None = option(
        None,
        "column of the text (text; question-answering: context; tagging: the words, tokens)",
        stage="prepare",
        metavar="COLUMN",
    )
    text_pair_column: str | None = option(
        None,
        "column of a second text; with multiple-choice and question-answering, of the question",
        stage="prepare",
        metavar="COLUMN",
    )
    label_column: tuple[str, ...] | None = option(
        None,
        "column of the label or number (label); with multi-label, of a list of labels, or one column of 0 and 1 for "
        "each label; with question-answering, of the answer (answer); with tagging, of the tags (tags)",
        stage="prepare",
        metavar="COLUMN",
        nargs="+",
    )
    choices_columns: tuple[str, ...] | None = option(
        None,
        "multiple-choice: columns of the options, or one column of lists (options)",
        stage="prepare",
        metavar="COLUMN",
        nargs="+",
    )
    id_column: str | None = option(
        None, "column of the ids in the prediction files (default: the line number)", stage="prepare", metavar="COLUMN"
    )
    group_column: str | None = option(
        None,
        "column of groups that stay together in training or development set, such as a "
        "person or document (default: the text; of pairs, the text that most rows share, if there is one)",
        stage="prepare",
        metavar="COLUMN",
    )
    labels: tuple[str, ...] | None = option(
        None,
        "the labels in the order of their numbers (default: those found, sorted)",
        stage="prepare",
        metavar="LABEL",
        nargs="+",
    )
    delimiter: str | None = option(
        None, "separator of the columns of .csv, such as ';' (a comma)", stage="prepare", metavar="CHARACTER"
    )
    label_separator: str | None = option(
        None, "multi-label: separator of the labels of a row (a comma)", stage="prepare", metavar="TEXT"
    )
    valid_share: float | None = option(
        None,
        "without --valid: share of the texts of each label in --train that is cut off as development set, by a hash of "
        "the text (0.1)",
        stage="prepare",
        smallest=0.001,
        largest=0.999,
        metavar="SHARE",
    )
    fold: str | None = option(
        None,
        "part K of N of the texts of --train is the development set; `roberta finetune --folds` prepares all",
        stage="prepare",
        metavar="K/N",
    )
    class_weights: str | None = option(
        None,
        "weights of the labels in the loss: none, or balanced: inversely proportional to their frequency (none)",
        stage="prepare",
        choices=("none", "balanced"),
    )
    threshold: float | None = option(
        None,
        "multi-label: probability from 0 to 1 from which a label is predicted; question-answering: probability of no "
        "answer above which none is given (default: the threshold with the best F1 on the development set)",
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
            "threshold": ("multi-label", "question-answering"),
            "labels": ("classification", "pair", "multi-label", "multiple-choice", "tagging"),
        }
        for name, kinds in of_kinds.items():
            if self.kind is not None and getattr(self, name) is not None and kind not in kinds:
                raise ValueError(f"--{name.replace('_', '-')} goes with --kind {' or '.join(kinds)}, not {kind}.")
        if self.class_weights == "balanced" and kind not in ("classification", "pair", "multi-label"):
            raise ValueError(f"--class-weights balanced goes with labels, and --kind {kind} has none of its own.")
        if kind == "tagging" and self.text_pair_column is not None:
            raise ValueError("--text-pair-column: --kind tagging has no second text. Leave it out.")
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
        if self.group_column is not None and self.valid is not None:
            raise ValueError(
                "--group-column says how --train is cut, and --valid that it is not. Leave one of them out."
            )
        cut_by = [name for name in ("valid", "valid_share", "fold") if getattr(self, name) is not None]
        if len(cut_by) > 1:
            named = " and ".join(f"--{name.replace('_', '-')}" for name in cut_by)
            raise ValueError(f"{named} both say what the development set is: give one of them.")

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
