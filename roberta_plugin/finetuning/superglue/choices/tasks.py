"""COPA, ReCoRD and CommonsenseQA in one table: files, layouts, and grids with their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from roberta_plugin.finetuning.raw_files import LABELLED, read_rows
from roberta_plugin.finetuning.superglue.choices.rows import ChoiceExample, read_commonsense_qa, read_copa, read_record
from roberta_plugin.finetuning.superglue.training import Training
from roberta_plugin.tables import Row, with_unique_ids

_FILES = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}


class Reader(Protocol):
    """What makes rows of an row."""

    def __call__(self, row: Row, *, is_training: bool, labelled: bool) -> Iterator[ChoiceExample]:
        """The rows of an row, one or more.

        Raises:
            ValueError: naming the file, the line and the field.
        """


@dataclass(frozen=True, kw_only=True)
class ChoiceTask:
    """One task."""

    name: str
    """On the command line, and of the folder in the official archive."""
    read: Reader
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _FILES)
    """Split -> names of its official file; the first that exists is read."""
    separators: int = 2
    """</s> between the text and the option."""
    metrics: tuple[str, ...] = ("accuracy",)
    """The official ones."""
    training: Training = field(default_factory=Training)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Split -> metric -> number of roberta.large in fairseq's READMEs."""

    def rows(self, split: str, path: Path) -> Iterator[ChoiceExample]:
        """The rows of a file; labels of a test set are not read.

        Raises:
            ValueError: naming the file, the line and what is wrong with it.
        """
        how = {"is_training": split == "train", "labelled": split in LABELLED}
        made = ((row.where, example) for row in read_rows(path) for example in self.read(row, **how))
        return with_unique_ids(made, id_of=lambda example: example.id)


_README = "RoBERTa large, fairseq's README"

# fairseq's examples/roberta/commonsense_qa/README.md: {1,2,3}e-5, batches of 8 or 16, 3,000 updates, 150 of warm-up.
_COMMONSENSE_QA = Training(batches=(8, 16), updates=3000, warm_up=150 / 3000)
# The paper's for RACE (Table 10), whose passages are as long.
_RECORD = Training(lrs=("1e-5",), batches=(16,), epochs=4)

TASKS: dict[str, ChoiceTask] = {
    task.name: task
    for task in (
        ChoiceTask(name="COPA", read=read_copa, paper={"valid": {"accuracy": 94.0}}),
        ChoiceTask(name="ReCoRD", read=read_record, metrics=("f1", "exact_match"), training=_RECORD),
        ChoiceTask(
            name="CommonsenseQA",
            read=read_commonsense_qa,
            files={
                "train": ("train_rand_split.jsonl", "train.jsonl"),
                "valid": ("dev_rand_split.jsonl", "valid.jsonl"),
                "test": ("test_rand_split_no_answers.jsonl", "test.jsonl"),
            },
            separators=1,
            training=_COMMONSENSE_QA,
            paper={"valid": {"accuracy": 78.5}, "test": {"accuracy": 72.1}},
        ),
    )
}
PAPER = {
    name: {split: {_README: dict(numbers)} for split, numbers in task.paper.items()} for name, task in TASKS.items()
}
