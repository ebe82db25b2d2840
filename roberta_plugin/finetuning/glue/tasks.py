"""The tasks of GLUE (Wang et al. 2019, arXiv 1804.07461) in one table: files, columns, labels, metrics, submission.

First stage of the map in `finetuning/glue/__init__.py`; everything that differs between the tasks is in this file.
Columns are named as in the headers of the official files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmark import Benchmark, Entries, Numbers, by_split
from roberta_plugin.finetuning.glue.reader import read_rows
from roberta_plugin.finetuning.glue.wnli import schema_examples
from roberta_plugin.finetuning.raw_files import find_files
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.examples import Example

logger = logging.getLogger(__name__)

HEADER = "index\tprediction"


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """A split and the official file that it is made of."""

    split: str  # its name in the prepared folder: train, valid, ...
    files: tuple[str, ...]  # the first that exists is read; if a split has two sources, the first with a file counts
    header: tuple[str, ...] = ()  # names of the columns, for a file without a header line
    sentences: tuple[str, ...] = ()  # columns, if they differ from those of the task
    label: str = ""  # the same
    renamed_labels: Mapping[str, str] = field(default_factory=dict)  # as the file spells them -> as the task does
    only: Mapping[str, str] = field(default_factory=dict)  # column -> value: the file's other rows are of other splits
    submission: str = ""  # the leaderboard's name of the file of predictions, without .tsv; the labels are not public

    @property
    def is_labelled(self) -> bool:
        """Whether the labels are public."""
        return not self.submission


@dataclass(frozen=True, kw_only=True)
class GlueFiles:
    """What the official files of a task look like."""

    name: str
    """The task's."""
    folder: str = ""
    """In the official archive; empty: called like the task."""
    sentences: tuple[str, ...]
    """Columns of the one text or the two."""
    label: str
    """Column of the label."""
    labels: tuple[str, ...] = ()
    """In the order of their ids, as the files spell them; empty: the label is a number."""
    limits: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest number."""
    sources: tuple[SplitSource, ...]
    leaves_out_broken_rows: bool = False
    """The official file has broken rows."""

    def find(self, raw: Path, options: Any) -> dict[str, list[Path]]:
        """`Benchmark.files`; `raw` is the folder of the task's files, or the one that holds it."""
        names: dict[str, list[str]] = {}
        for source in self.sources:
            names.setdefault(source.split, []).extend(source.files)
        return {split: [path] for split, path in find_files(self.folder or self.name, raw, names).items()}

    def source(self, split: str, path: Path) -> SplitSource:
        """What a file is."""
        of_split = (source for source in self.sources if source.split == split)
        return next(source for source in of_split if path.name in {Path(file).name for file in source.files})

    def read(self, split: str, paths: list[Path], options: Any) -> list[Example]:
        """The examples of a split."""
        (path,) = paths
        return read_rows(self, self.source(split, path), path)

    def predictions(self, split: str, entries: Entries) -> dict[str, Iterable[str]]:
        """`Benchmark.predictions`: the leaderboard's name, or TASK.SPLIT.tsv where it has none."""
        named = (source.submission for source in self.sources if source.split == split and source.submission)
        name = next(named, f"{self.name}.{split}")
        form = "{}" if self.labels else "{:.3f}"
        rows = (f"{entry['id']}\t{form.format(entry['prediction'])}" for entry in entries())
        return {f"{name}.tsv": chain([HEADER], rows)}


def task(
    files: GlueFiles,
    /,
    *,
    kind: str = "classification",
    read: Callable[[str, list[Path], Any], list[Example]] | None = None,
    **row: Any,
) -> Benchmark:
    """A row whose files are like those of GLUE; `read` is in place of `GlueFiles.read`, `row` are fields of the row."""

    def settings(*, max_length: int, options: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": kind, "labels": list(files.labels), "max_length": max_length}
        if kind == "regression":  # learned as 0 to 1, as fairseq's preprocess_GLUE_tasks.sh writes STS-B's scores
            found |= {"mean": files.limits[0], "deviation": files.limits[1] - files.limits[0]}
        return found

    def examples(split: str, paths: list[Path], options: Any) -> Sequence[Any]:
        rows = (read or files.read)(split, paths, options)
        logger.info(f"{files.name}, {split}: {len(rows):,} rows")
        if kind == "pair_ranking":
            return [row._replace(question=row.texts[0]) for row in rows]
        if kind != "phrase_ranking":
            return rows
        schemas = schema_examples(rows, is_training=split == "train")
        if split == "train":
            logger.info(f"{files.name}, {split}: {len(schemas):,} of {len(rows):,} rows are learned from")
        return schemas

    limits = files.limits if kind == "regression" else None
    fields: dict[str, Any] = {
        "files": files.find,
        "settings": settings,
        "records": by_split(examples),
        "rules": Official(columns=files.sentences, is_pair=len(files.sentences) == 2, limits=limits),
        "metrics": ("accuracy",),
        "predictions": files.predictions,
    }
    return Benchmark(name=files.name, kind=kind, **{**fields, **row})


def _three(test: str) -> tuple[SplitSource, ...]:
    """train.tsv, dev.tsv and test.tsv."""
    return (
        SplitSource(split="train", files=("train.tsv",)),
        SplitSource(split="valid", files=("dev.tsv",)),
        SplitSource(split="test", files=("test.tsv",), submission=test),
    )


def _paper(
    metric: str, *, large: float | None = None, base: float | None = None, test: float | None = None, on_test: str = ""
) -> Numbers:
    """Table 5 (large on dev, ensembles on test) and Table 8 (base on dev), which give one number per task.

    `on_test` is the metric of the test set, if it is another.
    """
    valid = {"RoBERTa large": large, "RoBERTa base": base}
    return {
        "valid": {row: {metric: number} for row, number in valid.items() if number is not None},
        "test": {} if test is None else {"RoBERTa large, test, ensemble": {on_test or metric: test}},
    }


_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_PAIR = ("sentence1", "sentence2")
_BINARY, _ENTAILMENT = ("0", "1"), ("not_entailment", "entailment")
FILES = {
    files.name: files
    for files in (
        GlueFiles(
            name="CoLA",
            sentences=("sentence",),
            label="label",
            labels=_BINARY,
            sources=(
                SplitSource(split="train", files=("train.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="valid", files=("dev.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="test", files=("test.tsv",), submission="CoLA"),
            ),
        ),
        GlueFiles(name="SST-2", sentences=("sentence",), label="label", labels=_BINARY, sources=_three("SST-2")),
        GlueFiles(
            name="MRPC", sentences=("#1 String", "#2 String"), label="Quality", labels=_BINARY, sources=_three("MRPC")
        ),
        GlueFiles(name="STS-B", sentences=_PAIR, label="score", limits=(0.0, 5.0), sources=_three("STS-B")),
        GlueFiles(
            name="QQP",
            sentences=("question1", "question2"),
            label="is_duplicate",
            labels=_BINARY,
            sources=_three("QQP"),
            leaves_out_broken_rows=True,
        ),
        GlueFiles(
            name="MNLI",
            sentences=_PAIR,
            label="gold_label",
            # In the order of the heads that fairseq has released (roberta.large.mnli).
            labels=("contradiction", "neutral", "entailment"),
            sources=(
                SplitSource(split="train", files=("train.tsv",)),
                SplitSource(split="valid", files=("dev_matched.tsv",)),
                # Not valid1: fairseq-train refuses a folder with such a split unless it validates on it.
                SplitSource(split="valid_mismatched", files=("dev_mismatched.tsv",)),
                SplitSource(split="test", files=("test_matched.tsv",), submission="MNLI-m"),
                SplitSource(split="test_mismatched", files=("test_mismatched.tsv",), submission="MNLI-mm"),
                SplitSource(
                    split="ax", files=("diagnostic-full.tsv",), sentences=("Premise", "Hypothesis"), label="Label"
                ),
                SplitSource(  # the diagnostic set, as it is for the leaderboard
                    split="ax",
                    files=("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv"),
                    submission="AX",
                ),
            ),
        ),
        GlueFiles(
            name="QNLI",
            folder="QNLI",
            sentences=("question", "sentence"),
            label="label",
            labels=_ENTAILMENT,
            sources=_three("QNLI"),
        ),
        GlueFiles(name="RTE", sentences=_PAIR, label="label", labels=_ENTAILMENT, sources=_three("RTE")),
        GlueFiles(name="WNLI", sentences=_PAIR, label="label", labels=_BINARY, sources=_three("WNLI")),
    )
}

_TWO: dict[str, Any] = {
    "metrics": ("acc_and_f1", "accuracy", "f1"),
    "selection": "acc_and_f1",
    "official": "accuracy",
}
_ROWS = (
    task(
        FILES["CoLA"],
        metrics=("mcc", "accuracy"),
        selection="mcc",
        paper=_paper("mcc", large=68.0, base=63.6, test=67.8),
    ),
    task(FILES["SST-2"], paper=_paper("accuracy", large=96.4, base=94.8, test=96.7)),
    task(
        FILES["MRPC"],
        **_TWO,
        paper=_paper("accuracy", large=90.9, base=90.2, test=92.3, on_test="f1"),
        starts_from="MNLI",
    ),
    task(
        FILES["STS-B"],
        kind="regression",
        metrics=("pearson_spearman", "pearson", "spearman"),
        official="pearson",
        paper=_paper("pearson", large=92.4, base=91.2, test=92.2),
        starts_from="MNLI",
    ),
    task(FILES["QQP"], **_TWO, paper=_paper("accuracy", large=92.2, base=91.9, test=90.2)),
    task(
        FILES["MNLI"],
        metrics_of={"ax": ("mcc", "accuracy")},  # for three classes R_3
        paper={
            **_paper("accuracy", large=90.2, base=87.6, test=90.8),
            "valid_mismatched": _paper("accuracy", large=90.2)["valid"],  # in Table 5 alone
            "test_mismatched": _paper("accuracy", test=90.2)["test"],
        },
    ),
    task(FILES["QNLI"], paper=_paper("accuracy", large=94.7, base=92.8)),
    task(replace(FILES["QNLI"], name="QNLI-ranking"), kind="pair_ranking", paper=_paper("accuracy", test=98.9)),
    task(FILES["RTE"], paper=_paper("accuracy", large=86.6, base=78.7, test=88.2), starts_from="MNLI"),
    task(FILES["WNLI"], kind="phrase_ranking", paper=_paper("accuracy", large=91.3, test=89.0)),
)
TASKS = {row.name: row for row in _ROWS}
