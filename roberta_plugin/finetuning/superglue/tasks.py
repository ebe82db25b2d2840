"""SuperGLUE's tasks of classification and of competing phrases, and WinoGrande, in one table.

First stage of the map in `finetuning/superglue/__init__.py`. Where fairseq's READMEs give settings, they are the grid;
the others have the paper's for GLUE (`training.Training`). The numbers beside ours are those of fairseq's
examples/roberta: the paper has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from roberta_plugin.finetuning.raw_files import LABELLED, find_files, read_rows
from roberta_plugin.finetuning.superglue.texts import (
    CB_LABELS,
    TextExample,
    read_boolq,
    read_cb,
    read_multirc,
    read_rte,
    read_wic,
)
from roberta_plugin.finetuning.superglue.training import Training
from roberta_plugin.finetuning.superglue.winograd import SchemaExample, read_winogrande, read_wsc, with_listed_answers
from roberta_plugin.tables import Row, with_unique_ids

Example = TextExample | SchemaExample
SIZES = ("xs", "s", "m", "l", "xl")  # of WinoGrande's training set
_FILES = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}


class Reader(Protocol):
    """What makes rows of an row."""

    def __call__(self, row: Row, *, labelled: bool) -> Iterator[Example]:
        """The rows of an row, one or more.

        Raises:
            ValueError: naming the file, the line and the field.
        """


@dataclass(frozen=True, kw_only=True)
class SuperGlueTask:
    """One task."""

    name: str
    """On the command line."""
    folder: str = ""
    """In the official archive; empty: called like the task."""
    kind: Literal["classification", "phrase_ranking"]
    """As in `glue/tasks.Kind`."""
    read: Reader
    labels: tuple[str, ...]
    """In the order of their ids, as the file of predictions spells them."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _FILES)
    """Split -> its official file; the first that exists is read. `{size}` is the option --size."""
    metrics: tuple[str, ...] = ("accuracy",)
    """The official ones."""
    selection: str = "accuracy"
    """The metric that selects the checkpoint, as named in the log."""
    training: Training = field(default_factory=Training)
    starts_from: str = ""
    """Task whose fine-tuned model is the start, instead of the pretrained one."""
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Split -> metric -> number of roberta.large in fairseq's READMEs."""

    def found(self, raw: Path, *, size: str | None = None) -> dict[str, Path]:
        """The file of each split that `raw`, or its folder of the task's name, has.

        Raises:
            FileNotFoundError: if the training or the development set is missing.
        """
        names = {split: [name.format(size=size or SIZES[-1]) for name in names] for split, names in self.files.items()}
        return find_files(self.folder or self.name, raw, names)

    def rows(self, split: str, path: Path) -> list[Example]:
        """The rows of a file; labels of a test set or diagnostic set are not read.

        Raises:
            ValueError: naming the file, the line and what is wrong with it.
        """
        rows = with_listed_answers(path, read_rows(path)) if self.name == "WinoGrande" else read_rows(path)
        made = ((row.where, example) for row in rows for example in self.read(row, labelled=split in LABELLED))
        return list(with_unique_ids(made, id_of=lambda example: example.id))


_README = "RoBERTa large, fairseq's README"

# fairseq's examples/roberta/wsc/README.md: {1,2,3}e-5, batches of 16, 32 or 64 rows, 2,000 updates, 250 of warm-up, and
# cross-entropy over the phrases instead of the margin. Its batches count rows with label 0, which have no loss; ours
# have the others only, 259 of 554 in the official set: half as many.
_WSC = Training(
    batches=(8, 16, 32),
    updates=2000,
    warm_up=250 / 2000,
    weight_decay="0.01",
    options={"phrase-cross-entropy": "true"},
)
# The same README: 1e-5, 32, 23,750 updates with 2,375 of warm-up, which are 19 epochs of the largest size; alpha 5 and
# beta 0.4, the criterion's defaults.
_WINOGRANDE = Training(lrs=("1e-5",), batches=(32,), epochs=19, warm_up=0.1, weight_decay="0.01")

TASKS: dict[str, SuperGlueTask] = {
    task.name: task
    for task in (
        SuperGlueTask(
            name="WSC",
            kind="phrase_ranking",
            read=read_wsc,
            labels=("False", "True"),
            training=_WSC,
            paper={"valid": {"accuracy": 91.3}},
        ),
        SuperGlueTask(
            name="WinoGrande",
            kind="phrase_ranking",
            read=read_winogrande,
            labels=("2", "1"),  # label 1: the first option is right
            files={
                "train": ("train_{size}.jsonl", "train.jsonl"),
                "valid": ("dev.jsonl", "val.jsonl"),
                "test": ("test.jsonl",),
            },
            training=_WINOGRANDE,
            paper={"test": {"accuracy": 78.1}},
        ),
        SuperGlueTask(
            name="BoolQ",
            kind="classification",
            read=read_boolq,
            labels=("false", "true"),
            paper={"valid": {"accuracy": 86.9}},
        ),
        SuperGlueTask(
            name="CB",
            kind="classification",
            read=read_cb,
            labels=CB_LABELS,
            metrics=("accuracy", "macro_f1"),
            starts_from="MNLI",
            paper={"valid": {"accuracy": 98.2}},
        ),
        SuperGlueTask(
            name="SuperRTE",  # GLUE's RTE has other files
            folder="RTE",
            kind="classification",
            read=read_rte,
            labels=("not_entailment", "entailment"),
            files={
                **_FILES,
                "ax_b": ("../AX-b/AX-b.jsonl", "AX-b.jsonl"),
                "ax_g": ("../AX-g/AX-g.jsonl", "AX-g.jsonl"),
            },
            starts_from="MNLI",
            paper={"valid": {"accuracy": 89.5}},
        ),
        SuperGlueTask(
            name="WiC",
            kind="classification",
            read=read_wic,
            labels=("false", "true"),
            paper={"valid": {"accuracy": 75.6}},
        ),
        SuperGlueTask(
            name="MultiRC",
            kind="classification",
            read=read_multirc,
            labels=("0", "1"),
            metrics=("f1a", "exact_match"),
            selection="f1",  # F1a is the F1 of label 1 over all answers
            paper={"valid": {"f1a": 85.7}},
        ),
    )
}
PAPER = {
    name: {split: {_README: dict(numbers)} for split, numbers in task.paper.items()} for name, task in TASKS.items()
}
