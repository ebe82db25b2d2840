"""The tasks of GLUE (Wang et al. 2019, arXiv 1804.07461) in one table: files, columns, labels, metrics, submission.

First stage of the map in `finetuning/glue/__init__.py`; everything that differs between the tasks is in this file.
Columns are named as in the headers of the official files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmark import Numbers
from roberta_plugin.finetuning.glue.reader import read_rows
from roberta_plugin.finetuning.glue.wnli import find_schema, training_schemas
from roberta_plugin.finetuning.raw_files import find_files
from roberta_plugin.finetuning.text_benchmark import TextBenchmark
from roberta_plugin.finetuning.text_examples import TextExample
from roberta_plugin.kinds.base import Official
from roberta_plugin.kinds.phrases import Schema

HEADER = "index\tprediction"


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """A split and the official file that it is made of."""

    split: str  # its name in the prepared folder: train, valid, ...
    files: tuple[str, ...]  # the first that exists is read; if a split has two sources, the first with a file counts
    labelled: bool = True  # False: the labels are not public
    header: tuple[str, ...] = ()  # names of the columns, for a file without a header line
    sentences: tuple[str, ...] = ()  # columns, if they differ from those of the task
    label: str = ""  # the same
    renamed_labels: Mapping[str, str] = field(default_factory=dict)  # as the file spells them -> as the task does
    only: Mapping[str, str] = field(default_factory=dict)  # column -> value: the file's other rows are of other splits
    submission: str = ""  # the leaderboard's name of the file of predictions, without .tsv
    num_rows: int = 0  # predictions that the leaderboard expects


@dataclass(frozen=True, kw_only=True)
class GlueTask(TextBenchmark):
    """One task of GLUE."""

    sentences: tuple[str, ...]
    """Columns of the one text or the two."""
    label: str
    """Column of the label."""
    sources: tuple[SplitSource, ...]
    leaves_out_broken_rows: bool = False
    """The official file has broken rows."""

    def files(self, raw: Path, options: Any) -> dict[str, list[Path]]:
        """See `Benchmark.files`; `raw` is the folder of the task's files, or the one that holds it."""
        names: dict[str, list[str]] = {}
        for source in self.sources:
            names.setdefault(source.split, []).extend(source.files)
        return {split: [path] for split, path in find_files(self.folder or self.name, raw, names).items()}

    def source(self, split: str, path: Path) -> SplitSource:
        """What a file is."""
        of_split = (source for source in self.sources if source.split == split)
        return next(source for source in of_split if path.name in {Path(file).name for file in source.files})

    def read_split(self, split: str, paths: list[Path], options: Any) -> list[TextExample]:
        """See `Benchmark.read_split`."""
        (path,) = paths
        return read_rows(self, self.source(split, path), path)

    def schema_of(self, example: TextExample) -> Schema | None:
        """See `TextBenchmark.schema_of`."""
        return find_schema(example)

    def learned(self, examples: Sequence[TextExample]) -> list[Schema]:
        """See `TextBenchmark.learned`."""
        return training_schemas(examples)

    @property
    def rules(self) -> Official:
        """See `OldBenchmark.rules`."""
        limits = self.limits if self.kind == "regression" else None
        return Official(columns=self.sentences, is_pair=len(self.sentences) == 2, limits=limits)

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """See `Benchmark.prediction_files`: the leaderboard's name, or TASK.SPLIT.tsv where it has none."""
        named = (source.submission for source in self.sources if source.split == split and source.submission)
        return (f"{next(named, f'{self.name}.{split}')}.tsv",)

    def lines(self, ids: Iterable[str], answers: Iterable[str]) -> Iterator[str]:
        """See `TextBenchmark.lines`."""
        yield HEADER
        yield from (f"{row_id}\t{answer}" for row_id, answer in zip(ids, answers, strict=True))


def _three(test: str, num_rows: int) -> tuple[SplitSource, ...]:
    """train.tsv, dev.tsv and test.tsv."""
    return (
        SplitSource(split="train", files=("train.tsv",)),
        SplitSource(split="valid", files=("dev.tsv",)),
        SplitSource(split="test", files=("test.tsv",), labelled=False, submission=test, num_rows=num_rows),
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
_COLA_TEST = SplitSource(split="test", files=("test.tsv",), labelled=False, submission="CoLA", num_rows=1063)
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("not_entailment", "entailment")

_AX = SplitSource(  # the diagnostic set, as it is for the leaderboard
    split="ax",
    files=("diagnostic.tsv", "AX.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv"),
    labelled=False,
    submission="AX",
    num_rows=1104,
)
_AX_WITH_LABELS = replace(
    _AX, files=("diagnostic-full.tsv",), labelled=True, sentences=("Premise", "Hypothesis"), label="Label"
)

_QNLI = GlueTask(
    name="QNLI",
    folder="QNLI",
    sentences=("question", "sentence"),
    label="label",
    labels=_ENTAILMENT,
    sources=_three("QNLI", 5463),
    paper=_paper("accuracy", large=94.7, base=92.8),
)

# Labels of MNLI are in the order of the heads that fairseq has released (roberta.large.mnli).
TASKS: dict[str, GlueTask] = {
    glue_task.name: glue_task
    for glue_task in (
        GlueTask(
            name="CoLA",
            paper=_paper("mcc", large=68.0, base=63.6, test=67.8),
            sentences=("sentence",),
            label="label",
            labels=("0", "1"),
            metrics=("mcc", "accuracy"),
            selection="mcc",
            sources=(
                SplitSource(split="train", files=("train.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="valid", files=("dev.tsv",), header=_COLA_COLUMNS),
                _COLA_TEST,
            ),
        ),
        GlueTask(
            name="SST-2",
            paper=_paper("accuracy", large=96.4, base=94.8, test=96.7),
            sentences=("sentence",),
            label="label",
            labels=("0", "1"),
            sources=_three("SST-2", 1821),
        ),
        GlueTask(
            name="MRPC",
            paper=_paper("accuracy", large=90.9, base=90.2, test=92.3, on_test="f1"),
            sentences=("#1 String", "#2 String"),
            label="Quality",
            labels=("0", "1"),
            metrics=("acc_and_f1", "accuracy", "f1"),
            selection="acc_and_f1",
            official="accuracy",
            sources=_three("MRPC", 1725),
            starts_from="MNLI",
        ),
        GlueTask(
            name="STS-B",
            paper=_paper("pearson", large=92.4, base=91.2, test=92.2),
            sentences=_PAIR,
            label="score",
            limits=(0.0, 5.0),
            kind="regression",
            metrics=("pearson_spearman", "pearson", "spearman"),
            selection="pearson_spearman",
            official="pearson",
            sources=_three("STS-B", 1379),
            starts_from="MNLI",
        ),
        GlueTask(
            name="QQP",
            paper=_paper("accuracy", large=92.2, base=91.9, test=90.2),
            sentences=("question1", "question2"),
            label="is_duplicate",
            labels=("0", "1"),
            metrics=("acc_and_f1", "accuracy", "f1"),
            selection="acc_and_f1",
            official="accuracy",
            sources=_three("QQP", 390965),
            leaves_out_broken_rows=True,
        ),
        GlueTask(
            name="MNLI",
            paper={
                **_paper("accuracy", large=90.2, base=87.6, test=90.8),
                "valid_mismatched": _paper("accuracy", large=90.2)["valid"],  # in Table 5 alone
                "test_mismatched": _paper("accuracy", test=90.2)["test"],
            },
            sentences=_PAIR,
            label="gold_label",
            labels=("contradiction", "neutral", "entailment"),
            sources=(
                SplitSource(split="train", files=("train.tsv",)),
                SplitSource(split="valid", files=("dev_matched.tsv",)),
                # Not valid1: fairseq-train refuses a folder with such a split unless it validates on it.
                SplitSource(split="valid_mismatched", files=("dev_mismatched.tsv",)),
                SplitSource(
                    split="test", files=("test_matched.tsv",), labelled=False, submission="MNLI-m", num_rows=9796
                ),
                SplitSource(
                    split="test_mismatched",
                    files=("test_mismatched.tsv",),
                    labelled=False,
                    submission="MNLI-mm",
                    num_rows=9847,
                ),
                _AX_WITH_LABELS,
                _AX,
            ),
        ),
        _QNLI,
        replace(_QNLI, name="QNLI-ranking", kind="pair_ranking", paper=_paper("accuracy", test=98.9)),
        GlueTask(
            name="RTE",
            paper=_paper("accuracy", large=86.6, base=78.7, test=88.2),
            sentences=_PAIR,
            label="label",
            labels=_ENTAILMENT,
            sources=_three("RTE", 3000),
            starts_from="MNLI",
        ),
        GlueTask(
            name="WNLI",
            paper=_paper("accuracy", large=91.3, test=89.0),
            sentences=_PAIR,
            label="label",
            labels=("0", "1"),
            kind="phrase_ranking",
            sources=_three("WNLI", 146),
        ),
    )
}
