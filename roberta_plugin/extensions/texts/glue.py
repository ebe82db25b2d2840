"""GLUE (Wang et al. 2019, arXiv 1804.07461): official files, columns, labels, metrics, submission.

CoLA's train and dev files have no header line, its test file has one. WNLI is in another extension, which compares
phrases in place of the pronoun.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from roberta_plugin.finetuning.benchmarks.tsv_files import (
    ENTAILMENT,
    PAIR,
    SplitSource,
    TsvFiles,
    paper_numbers,
    tsv_task,
)

task = partial(tsv_task, kind="classification", leaderboard="glue")
_COLA_COLUMNS = ("source", "label", "mark", "sentence")
FILES = {
    files.name: files
    for files in (
        TsvFiles(
            name="CoLA",
            sentences=("sentence",),
            splits=(
                SplitSource(split="train", files=("train.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="valid", files=("dev.tsv",), header=_COLA_COLUMNS),
                SplitSource(split="test", files=("test.tsv",), submission="CoLA"),
            ),
        ),
        TsvFiles(name="SST-2", sentences=("sentence",)),
        TsvFiles(name="MRPC", sentences=("#1 String", "#2 String"), label="Quality"),
        TsvFiles(name="STS-B", sentences=PAIR, label="score", labels=(), limits=(0.0, 5.0)),
        TsvFiles(name="QQP", sentences=("question1", "question2"), label="is_duplicate", leaves_out_broken_rows=True),
        TsvFiles(
            name="MNLI",
            sentences=PAIR,
            label="gold_label",
            # In the order of the heads that fairseq has released (roberta.large.mnli).
            labels=("contradiction", "neutral", "entailment"),
            splits=(
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
        TsvFiles(name="QNLI", folder="QNLI", sentences=("question", "sentence"), labels=ENTAILMENT),
        TsvFiles(name="RTE", sentences=PAIR, labels=ENTAILMENT),
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
        test_rows={"test": 1063},
        on_hub=("nyu-mll/glue", "cola"),
        metrics=("mcc", "accuracy"),
        selection="mcc",
        paper=paper_numbers("mcc", large=68.0, base=63.6, test=67.8),
    ),
    task(
        FILES["SST-2"],
        test_rows={"test": 1821},
        on_hub=("nyu-mll/glue", "sst2"),
        paper=paper_numbers("accuracy", large=96.4, base=94.8, test=96.7),
    ),
    task(
        FILES["MRPC"],
        test_rows={"test": 1725},
        on_hub=("nyu-mll/glue", "mrpc"),
        **_TWO,
        paper=paper_numbers("accuracy", large=90.9, base=90.2, test=92.3, on_test="f1"),
        starts_from="MNLI",
    ),
    task(
        FILES["STS-B"],
        test_rows={"test": 1379},
        on_hub=("nyu-mll/glue", "stsb"),
        kind="regression",
        metrics=("pearson_spearman", "pearson", "spearman"),
        official="pearson",
        paper=paper_numbers("pearson", large=92.4, base=91.2, test=92.2),
        starts_from="MNLI",
    ),
    task(
        FILES["QQP"],
        test_rows={"test": 390965},
        **_TWO,
        on_hub=("nyu-mll/glue", "qqp"),
        paper=paper_numbers("accuracy", large=92.2, base=91.9, test=90.2),
    ),
    task(
        FILES["MNLI"],
        test_rows={"test": 9796, "test_mismatched": 9847, "ax": 1104},
        on_hub=("nyu-mll/glue", "mnli"),
        metrics_of={"ax": ("mcc", "accuracy")},  # for three classes, mcc is R_3
        paper={
            **paper_numbers("accuracy", large=90.2, base=87.6, test=90.8),
            "valid_mismatched": paper_numbers("accuracy", large=90.2)["valid"],  # only Table 5 has it
            "test_mismatched": paper_numbers("accuracy", test=90.2)["test"],
        },
    ),
    task(
        FILES["QNLI"],
        test_rows={"test": 5463},
        on_hub=("nyu-mll/glue", "qnli"),
        paper=paper_numbers("accuracy", large=94.7, base=92.8),
    ),
    task(
        replace(FILES["QNLI"], name="QNLI-ranking"),
        kind="pair_ranking",
        examples_of=lambda split, rows: [row._replace(question=row.texts[0]) for row in rows],
        on_hub=("nyu-mll/glue", "qnli"),
        paper=paper_numbers("accuracy", test=98.9),
    ),
    task(
        FILES["RTE"],
        test_rows={"test": 3000},
        on_hub=("nyu-mll/glue", "rte"),
        paper=paper_numbers("accuracy", large=86.6, base=78.7, test=88.2),
        starts_from="MNLI",
    ),
)
TASKS = {row.name: row for row in _ROWS}
