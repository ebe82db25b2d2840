"""SuperGLUE's tasks of classification and of competing phrases, and WinoGrande, in one table.

First stage of the map in `finetuning/superglue/__init__.py`. Where fairseq's READMEs give settings, they are the grid;
the others have the paper's for GLUE (`benchmark.Training`). The numbers beside ours are those of fairseq's
examples/roberta: the paper has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from roberta_plugin.finetuning.benchmark import Numbers, Training, as_json
from roberta_plugin.finetuning.options import SuperGlueOptions
from roberta_plugin.finetuning.raw_files import LABELLED, find_files, read_rows
from roberta_plugin.finetuning.superglue.texts import (
    CB_LABELS,
    boolq_texts,
    cb_texts,
    multirc_texts,
    read_multirc,
    rte_texts,
    wic_texts,
)
from roberta_plugin.finetuning.superglue.winograd import (
    answer_list,
    read_winogrande,
    read_wsc,
    training_rows,
    with_listed_answers,
)
from roberta_plugin.finetuning.text_benchmark import TextBenchmark
from roberta_plugin.finetuning.text_examples import SchemaExample, TextExample
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.phrases import Schema
from roberta_plugin.tables import IN_MEMORY, Row, with_unique_ids

Example = TextExample | SchemaExample
SIZES = ("xs", "s", "m", "l", "xl")  # of WinoGrande's training set
FILES = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}
_OFFICIAL = {("SuperRTE", "test"): "RTE", ("SuperRTE", "ax_b"): "AX-b", ("SuperRTE", "ax_g"): "AX-g"}


class Reader(Protocol):
    """What makes examples of a row."""

    def __call__(self, row: Row, *, labelled: bool) -> Iterator[Example]:
        """The examples of a row, one or more."""


@dataclass(frozen=True, kw_only=True)
class SuperGlueTask(TextBenchmark):
    """One task."""

    reader: Reader | None = None
    """None: a row is one example, with `texts_of` and a label."""
    texts_of: Callable[[Row], tuple[str, str]] | None = None
    """The texts of a row, or of a record that is to be predicted."""
    answers: tuple[bool, ...] = ()
    """The labels in the official files, if they spell them otherwise."""
    names: Mapping[str, Sequence[str]] = field(default_factory=lambda: FILES)
    """Split -> names of its official file; the first that exists is read. `{size}` is the option --size."""

    def files(self, raw: Path, options: SuperGlueOptions) -> dict[str, list[Path]]:
        """See `Benchmark.files`; `raw` is the folder of the task's files, or the one that holds it."""
        size = options.size or SIZES[-1]
        names = {split: [name.format(size=size) for name in names] for split, names in self.names.items()}
        return {split: [path] for split, path in find_files(self.folder or self.name, raw, names).items()}

    def source_files(self, files: Mapping[str, list[Path]]) -> list[Path]:
        """See `Benchmark.source_files`: with the lists of answers."""
        paths = super().source_files(files)
        lists = [listed for path in paths if self.is_winogrande and (listed := answer_list(path)) is not None]
        return paths + lists

    def settings(self, *, max_length: int, options: SuperGlueOptions) -> dict[str, Any]:
        """See `Benchmark.settings`."""
        size = {"size": options.size or SIZES[-1]} if self.is_winogrande else {}
        return {**super().settings(max_length=max_length, options=options), **size}

    @property
    def is_winogrande(self) -> bool:
        """Whether options compete, and answers may be in a list beside the file."""
        return self.name == "WinoGrande"

    def read_split(self, split: str, paths: list[Path], options: SuperGlueOptions) -> list[Example]:
        """See `Benchmark.read_split`."""
        (path,) = paths
        return self.examples(split, path)

    def examples(self, split: str, path: Path) -> list[Example]:
        """The examples of a file; labels of a test set or diagnostic set are not read."""
        rows = with_listed_answers(path, read_rows(path)) if self.is_winogrande else read_rows(path)
        made = ((row.where, example) for row in rows for example in self.examples_of(row, labelled=split in LABELLED))
        return list(with_unique_ids(made, id_of=lambda example: example.id))

    def examples_of(self, row: Row, *, labelled: bool) -> Iterator[Example]:
        """The examples of a row."""
        if self.reader is not None:
            yield from self.reader(row, labelled=labelled)
        elif self.texts_of is not None:
            label = row.label("label", self.answers or self.labels) if labelled else None
            yield TextExample(row.number("idx"), self.texts_of(row), label)

    @property
    def rules(self) -> Official:
        """See `OldBenchmark.rules`."""
        if (texts_of := self.texts_of) is None:
            return Official()
        return Official(is_pair=True, texts=lambda record: texts_of(Row(IN_MEMORY, 0, record)))

    def learned(self, examples: Sequence[SchemaExample]) -> list[Schema]:
        """See `TextBenchmark.learned`."""
        return training_rows(examples, are_rivals_options=self.is_winogrande)

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """See `Benchmark.prediction_files`: the leaderboard's name, such as BoolQ.jsonl, or TASK.SPLIT.jsonl."""
        name = _OFFICIAL.get((self.name, split), self.name if split == "test" else f"{self.name}.{split}")
        return (f"{name}.{'lst' if self.is_winogrande else 'jsonl'}",)

    def lines(self, ids: Iterable[Any], answers: Iterable[str]) -> Iterator[str]:
        """See `TextBenchmark.lines`; labels are spelt as SuperGLUE's baseline writes them (jiant, `evaluate.py`).

        SuperGLUE    one JSON object per row: {"idx": 0, "label": "true"}
        MultiRC      one per paragraph: {"idx": 0, "passage": {"questions": [{"idx": 0, "answers": [...]}]}}, where
                     an answer is {"idx": 0, "label": 1}
        WinoGrande   one line per row: 1 or 2
        """
        if self.is_winogrande:
            yield from answers
        elif self.name == "MultiRC":
            yield from map(json.dumps, _paragraphs(ids, answers))
        else:
            yield from as_json({"idx": row_id, "label": answer} for row_id, answer in zip(ids, answers, strict=True))


def _paragraphs(ids: Iterable[Sequence[int]], labels: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Labels of the answers, by paragraph and question, in the order of the file."""
    nested: dict[int, dict[int, list[dict[str, int]]]] = {}
    for (paragraph, question, answer), label in zip(ids, labels, strict=True):
        answers = nested.setdefault(paragraph, {}).setdefault(question, [])
        answers.append({"idx": answer, "label": int(label)})
    for paragraph, questions in nested.items():
        listed = [{"idx": question, "answers": answers} for question, answers in questions.items()]
        yield {"idx": paragraph, "passage": {"questions": listed}}


def readme(split: str, **numbers: float) -> Numbers:
    """Numbers of roberta.large in fairseq's READMEs."""
    return {split: {"RoBERTa large, fairseq's README": numbers}}


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
            reader=read_wsc,
            labels=("False", "True"),
            training=_WSC,
            paper=readme("valid", accuracy=91.3),
        ),
        SuperGlueTask(
            name="WinoGrande",
            kind="phrase_ranking",
            reader=read_winogrande,
            labels=("2", "1"),  # label 1: the first option is right
            names={
                "train": ("train_{size}.jsonl", "train.jsonl"),
                "valid": ("dev.jsonl", "val.jsonl"),
                "test": ("test.jsonl",),
            },
            training=_WINOGRANDE,
            paper=readme("test", accuracy=78.1),
        ),
        SuperGlueTask(
            name="BoolQ",
            texts_of=boolq_texts,
            answers=(False, True),
            labels=("false", "true"),
            paper=readme("valid", accuracy=86.9),
        ),
        SuperGlueTask(
            name="CB",
            texts_of=cb_texts,
            labels=CB_LABELS,
            metrics=("accuracy", "macro_f1"),
            official="accuracy",
            starts_from="MNLI",
            paper=readme("valid", accuracy=98.2),
        ),
        SuperGlueTask(
            name="SuperRTE",  # GLUE's RTE has other files
            folder="RTE",
            texts_of=rte_texts,
            labels=("not_entailment", "entailment"),
            names={
                **FILES,
                "ax_b": ("../AX-b/AX-b.jsonl", "AX-b.jsonl"),
                "ax_g": ("../AX-g/AX-g.jsonl", "AX-g.jsonl"),
            },
            starts_from="MNLI",
            paper=readme("valid", accuracy=89.5),
        ),
        SuperGlueTask(
            name="WiC",
            texts_of=wic_texts,
            answers=(False, True),
            labels=("false", "true"),
            paper=readme("valid", accuracy=75.6),
        ),
        SuperGlueTask(
            name="MultiRC",
            reader=read_multirc,
            texts_of=multirc_texts,
            labels=("0", "1"),
            metrics=("f1a", "exact_match"),
            official="f1a",
            selection="f1",  # F1a is the F1 of label 1 over all answers
            paper=readme("valid", f1a=85.7),
        ),
    )
}
