"""The tasks of GLUE (Wang et al. 2019, arXiv 1804.07461) in one table: files, columns, labels, metrics, submission.

First stage of the map in `finetuning/glue/__init__.py`; everything that differs between the tasks is in this file.
Columns are named as in the headers of the official files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

# What a model predicts: one of several labels; a number; a logit for each pair, where the best pair of a question is
# the right one (`ranking`); a score for each phrase that could replace a pronoun (`wnli`).
Kind = Literal["classification", "regression", "pair_ranking", "phrase_ranking"]


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """A split and the official file that it is made of."""

    split: str  # its name in the prepared folder: train, valid, ...
    files: tuple[str, ...]  # the first that exists is read; if a split has two sources, the first with a file counts
    needed: bool = False  # whether it is an error if it is missing
    labelled: bool = True  # False: the labels are not public
    header: tuple[str, ...] = ()  # names of the columns, for a file without a header line
    sentences: tuple[str, ...] = ()  # columns, if they differ from those of the task
    label: str = ""  # the same
    submission: str = ""  # the leaderboard's name of the file of predictions, without .tsv
    num_rows: int = 0  # predictions that the leaderboard expects


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task of GLUE."""

    name: str  # on the command line
    folder: str  # in the official archive
    sentences: tuple[str, ...]  # columns of the one text or the two
    label: str  # column of the label
    labels: tuple[str, ...] = ()  # in the order of their ids, as the files spell them; empty: the label is a number
    limits: tuple[float, float] = (0.0, 0.0)  # of the number
    kind: Kind = "classification"
    metrics: tuple[str, ...] = ("accuracy",)
    selection: str = "accuracy"  # the metric that selects the checkpoint, as named in the log
    sources: tuple[SplitSource, ...]
    starts_from: str = ""  # task whose fine-tuned model is the start, instead of the pretrained one
    leaves_out_broken_rows: bool = False  # the official file has broken rows

    def found(self, folder: Path) -> dict[str, tuple[SplitSource, Path]]:
        """Splits that have a file in `folder` -> their source and the file.

        Raises:
            FileNotFoundError: if a file is missing that the task needs.
        """
        found: dict[str, tuple[SplitSource, Path]] = {}
        for source in self.sources:
            path = next((folder / file for file in source.files if (folder / file).is_file()), None)
            if path is not None:
                found.setdefault(source.split, (source, path))
            elif source.needed:
                raise FileNotFoundError(
                    f"{folder / source.files[0]} does not exist: {self.name} is made of the files of GLUE's official "
                    f"archive as they are; give the folder that holds {source.files[0]}, or the one that holds "
                    f"{self.folder}/."
                )
        return found

    def submission(self, split: str) -> SplitSource | None:
        """The source of a split whose predictions go to the leaderboard, None for the others."""
        return next((source for source in self.sources if source.split == split and source.submission), None)


def _three(test: str, num_rows: int) -> tuple[SplitSource, ...]:
    """train.tsv, dev.tsv and test.tsv."""
    return (
        SplitSource(split="train", files=("train.tsv",), needed=True),
        SplitSource(split="valid", files=("dev.tsv",), needed=True),
        SplitSource(split="test", files=("test.tsv",), labelled=False, submission=test, num_rows=num_rows),
    )


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
)

# Labels of MNLI are in the order of the heads that fairseq has released (roberta.large.mnli).
TASKS: dict[str, GlueTask] = {
    glue_task.name: glue_task
    for glue_task in (
        GlueTask(
            name="CoLA",
            folder="CoLA",
            sentences=("sentence",),
            label="label",
            labels=("0", "1"),
            metrics=("mcc", "accuracy"),
            selection="mcc",
            sources=(
                SplitSource(split="train", files=("train.tsv",), needed=True, header=_COLA_COLUMNS),
                SplitSource(split="valid", files=("dev.tsv",), needed=True, header=_COLA_COLUMNS),
                _COLA_TEST,
            ),
        ),
        GlueTask(
            name="SST-2",
            folder="SST-2",
            sentences=("sentence",),
            label="label",
            labels=("0", "1"),
            sources=_three("SST-2", 1821),
        ),
        GlueTask(
            name="MRPC",
            folder="MRPC",
            sentences=("#1 String", "#2 String"),
            label="Quality",
            labels=("0", "1"),
            metrics=("acc_and_f1", "accuracy", "f1"),
            selection="acc_and_f1",
            sources=_three("MRPC", 1725),
            starts_from="MNLI",
        ),
        GlueTask(
            name="STS-B",
            folder="STS-B",
            sentences=_PAIR,
            label="score",
            limits=(0.0, 5.0),
            kind="regression",
            metrics=("pearson_spearman", "pearson", "spearman"),
            selection="pearson_spearman",
            sources=_three("STS-B", 1379),
            starts_from="MNLI",
        ),
        GlueTask(
            name="QQP",
            folder="QQP",
            sentences=("question1", "question2"),
            label="is_duplicate",
            labels=("0", "1"),
            metrics=("acc_and_f1", "accuracy", "f1"),
            selection="acc_and_f1",
            sources=_three("QQP", 390965),
            leaves_out_broken_rows=True,
        ),
        GlueTask(
            name="MNLI",
            folder="MNLI",
            sentences=_PAIR,
            label="gold_label",
            labels=("contradiction", "neutral", "entailment"),
            sources=(
                SplitSource(split="train", files=("train.tsv",), needed=True),
                SplitSource(split="valid", files=("dev_matched.tsv",), needed=True),
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
        replace(_QNLI, name="QNLI-ranking", kind="pair_ranking"),
        GlueTask(
            name="RTE",
            folder="RTE",
            sentences=_PAIR,
            label="label",
            labels=_ENTAILMENT,
            sources=_three("RTE", 3000),
            starts_from="MNLI",
        ),
        GlueTask(
            name="WNLI",
            folder="WNLI",
            sentences=_PAIR,
            label="label",
            labels=("0", "1"),
            kind="phrase_ranking",
            sources=_three("WNLI", 146),
        ),
    )
}
