"""Options of tables of your own. Options that only some kinds have come from the extensions of these kinds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.kinds import kind_class, option_words, own_kinds
from roberta_plugin.finetuning.layouts import LONG_TEXTS, POOLINGS
from roberta_plugin.finetuning.options import (
    FileOptions,
    find_own_kind,
    kinds_with,
    of_kinds_with,
    option,
    own_kind_names,
    set_texts,
)
from roberta_plugin.option_slices import compose
from roberta_plugin.registry import TABLE_OPTIONS
from roberta_plugin.tables import separator

USUAL_KIND = next(iter(own_kinds()), "")
_WINDOWS = {"long_texts": ("windows",)}


def kinds_of_two_texts() -> tuple[str | None, ...]:
    """Kinds whose records have a second text, as --kind names them; and None: a prepared folder names the kind."""
    return *(name for name in own_kind_names() if len(kind_class(find_own_kind(name)).fields) > 1), None


def _by_kind(option: str) -> str:
    """The end of an option's help: what it is for single kinds.

    Example: "; question-answering: answer by default; tagging: tags by default"
    """
    return "".join(f"; {kind}: {words}" for kind, words in option_words(option).items())


@dataclass(frozen=True, kw_only=True)
class TableOptions(FileOptions):
    """Options that tables of all kinds have."""

    source = ("--train", "your table")

    kind: str | None = option("what is learned", default_text=USUAL_KIND, choices=own_kind_names)
    train: str | None = option(
        "table to train on, also by URL: .csv, .tsv, .jsonl, also .gz, .zst, .xz, .bz2, .parquet, .arrow or a folder "
        f"of datasets; relative to --raw, if given{_by_kind('train')}",
        metavar="FILE",
    )
    valid: str | None = option("table of the development set (default: a share of --train)", metavar="FILE")
    test: str | None = option("table of the test set, with or without the label column", metavar="FILE")
    text_column: str | None = option(
        f"column of the text{_by_kind('text_column')}", default_text="text", metavar="COLUMN"
    )
    text_pair_column: str | None = option(
        f"column of a second text{_by_kind('text_pair_column')}",
        goes_with={"kind": kinds_of_two_texts},
        metavar="COLUMN",
    )
    label_column: tuple[str, ...] | None = option(
        f"column of the label or number{_by_kind('label_column')}",
        default_text="label",
        metavar="COLUMN",
        nargs="+",
    )
    id_column: str | None = option(
        "column of the ids in the prediction files (default: the line number)", metavar="COLUMN"
    )
    group_column: str | None = option(
        "column of groups, such as a person or document; the rows of a group are all in the training or all in the "
        "development set",
        default_text="the text; for pairs, the text that most rows share",
        excludes=("valid",),
        metavar="COLUMN",
    )
    labels: tuple[str, ...] | None = option(
        "the labels in the order of their numbers",
        default_text="all that are found, sorted",
        goes_with=of_kinds_with("labels"),
        metavar="LABEL",
        nargs="+",
    )
    label_names: tuple[str, ...] | None = option(
        "names of the labels or tags 0, 1, ..., if the column has numbers without their names",
        default_text="from the file, dataset_info.json or README.md",
        goes_with=of_kinds_with("label_names"),
        metavar="LABEL",
        nargs="+",
    )
    delimiter: str | None = option(
        "separator of the columns of .csv, such as ';' or '\\t'; '\\t' also for a .tsv with cells quoted as in CSV",
        default_text="a comma",
        metavar="CHARACTER",
    )
    decimal: str | None = option(
        "decimal mark of the numbers in --label-column",
        default_text="a point",
        goes_with=of_kinds_with("decimal"),
        choices=(".", ","),
        metavar="CHARACTER",
    )
    valid_share: float | None = option(
        "share of each label's texts in --train for the development set, by a hash; with --fold, they "
        "select the checkpoint, and the fold is only evaluated",
        default_text="0.1, with a fold 0",
        excludes=("valid",),
        smallest=0.001,
        largest=0.999,
        metavar="SHARE",
    )
    fold: str | None = option(
        "part K of N of the texts of --train is the development set; `roberta finetune --folds` prepares all",
        excludes=("valid",),
        metavar="K/N",
    )
    long_texts: str | None = option(
        "part that is read of a text longer than --max-length: its head, its tail, both, or all of it in windows whose "
        "features are pooled",
        default_text="as the fine-tuned model, if it has this kind, else head",
        goes_with=of_kinds_with("long_texts"),
        choices=LONG_TEXTS,
    )
    window_stride: int | None = option(
        "--long-texts windows: most tokens between the starts of two windows",
        default_text="as many as a window has: no overlap",
        goes_with=_WINDOWS,
        smallest=1,
    )
    max_windows: int | None = option(
        "--long-texts windows: most windows of a text in training, evenly spread; all are read in evaluation",
        default_text=8,
        goes_with=_WINDOWS,
        smallest=1,
    )
    window_pooling: str | None = option(
        "--long-texts windows: mean or maximum of their features",
        default_text="mean",
        goes_with=_WINDOWS,
        choices=POOLINGS,
    )
    threshold: float | None = option(
        f"probability from which a label is predicted{_by_kind('threshold')}",
        default_text="the best by F1 on the development set; with two labels 0.5",
        stage="score",
        goes_with=of_kinds_with("threshold"),
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )

    def __post_init__(self) -> None:
        """Check the values.

        Values may be those that a prepared folder records: lists instead of tuples, and multi_label for multi-label.
        """
        set_texts(self, "label_column", "labels", "label_names")
        if self.kind is not None:
            object.__setattr__(self, "kind", self.kind.replace("_", "-"))
        super().__post_init__()
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", separator(self.delimiter))
        kind, kinds = self.kind or USUAL_KIND, kinds_with("label_columns")
        if len(self.label_column or ()) > 1 and kind not in kinds:
            raise ValueError(
                f"--label-column takes one column with --kind {kind}; several go with {' and '.join(kinds)}."
            )
        if self.fold is not None:
            self.part()

    @property
    def own_kind(self) -> str:
        """The kind as prepared folders record it."""
        return find_own_kind(self.kind or USUAL_KIND)

    @property
    def usual_raw(self) -> Path | None:
        """The current folder, if there is a table."""
        return Path() if self.files else None

    def part(self) -> tuple[int, int]:
        """The number of the part that is the development set, and the number of parts.

        Example:
            CustomOptions(fold="2/5").part()  ->  (2, 5)

        Raises:
            ValueError: if --fold is not written so.
        """
        number, separator, total = (self.fold or "").partition("/")
        if not separator or not number.isdecimal() or not total.isdecimal() or not 1 <= int(number) <= int(total) != 1:
            raise ValueError(f"--fold must be a part and their number, such as 2/5, got {self.fold!r}.")
        return int(number), int(total)


def __getattr__(name: str) -> Any:
    """`CustomOptions`: `TableOptions` with the options of all extensions."""
    if name == "CustomOptions":
        return compose(TableOptions, TABLE_OPTIONS, name=name, module=__name__)
    raise AttributeError(f"{__name__} has no {name}")
