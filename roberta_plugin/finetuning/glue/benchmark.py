"""GLUE as a benchmark (`finetuning/benchmarks.py`): prepare, recipe, score, and the paper's numbers.

Shapes: N examples of a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.glue.predictions import file_name, predict, write_predictions
from roberta_plugin.finetuning.glue.prepare import prepare as prepare
from roberta_plugin.finetuning.glue.prepare import raw_files as raw_files
from roberta_plugin.finetuning.glue.prepare import settings as settings
from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.finetuning.options import GlueOptions
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.kinds import metrics
from roberta_plugin.kinds.outputs import RawOutputs

_LARGE, _BASE, _TEST = "RoBERTa large", "RoBERTa base", "RoBERTa large, test, ensemble"
# Table 5 (large on dev, ensembles on test) and Table 8 (base on dev). The paper gives one number per task: accuracy,
# for CoLA Matthews and for STS-B Pearson; on test, MRPC's is F1.
_NUMBERS: dict[str, dict[str, dict[str, float]]] = {
    "CoLA": {_LARGE: {"mcc": 68.0}, _BASE: {"mcc": 63.6}, _TEST: {"mcc": 67.8}},
    "SST-2": {_LARGE: {"accuracy": 96.4}, _BASE: {"accuracy": 94.8}, _TEST: {"accuracy": 96.7}},
    "MRPC": {_LARGE: {"accuracy": 90.9}, _BASE: {"accuracy": 90.2}, _TEST: {"f1": 92.3}},
    "STS-B": {_LARGE: {"pearson": 92.4}, _BASE: {"pearson": 91.2}, _TEST: {"pearson": 92.2}},
    "QQP": {_LARGE: {"accuracy": 92.2}, _BASE: {"accuracy": 91.9}, _TEST: {"accuracy": 90.2}},
    "MNLI": {_LARGE: {"accuracy": 90.2}, _BASE: {"accuracy": 87.6}, _TEST: {"accuracy": 90.8}},
    "QNLI": {_LARGE: {"accuracy": 94.7}, _BASE: {"accuracy": 92.8}},
    "QNLI-ranking": {_TEST: {"accuracy": 98.9}},
    "RTE": {_LARGE: {"accuracy": 86.6}, _BASE: {"accuracy": 78.7}, _TEST: {"accuracy": 88.2}},
    "WNLI": {_LARGE: {"accuracy": 91.3}, _TEST: {"accuracy": 89.0}},
}

# The paper's numbers by the split they belong to; MNLI's for mismatched are in Table 5 alone.
PAPER = {
    task: {
        "valid": {row: numbers for row, numbers in rows.items() if row != _TEST},
        "test": {row: numbers for row, numbers in rows.items() if row == _TEST},
    }
    for task, rows in _NUMBERS.items()
}
PAPER["MNLI"]["valid_mismatched"] = {_LARGE: {"accuracy": 90.2}}
PAPER["MNLI"]["test_mismatched"] = {_TEST: {"accuracy": 90.2}}
_EPOCHS = 10


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> PaperRecipe:
    """The paper's Table 10: {1,2,3}e-5 and batches of 16 or 32 for 10 epochs, the median of five seeds."""
    num_examples = len(prepared.split("train"))
    name = "roberta_sentence_prediction"
    return PaperRecipe(
        train={"task": name, "criterion": name, **COMMON, "weight-decay": "0.1"},
        axes={
            "lr": ["1e-5", "2e-5", "3e-5"],
            "batch": {
                str(size): schedule(num_examples, batch_size=size, epochs=epochs or _EPOCHS) for size in (16, 32)
            },
        },
        seeds=["1", "2", "3", "4", "5"],
        metric={"log": "valid", "value": TASKS[task].selection, "goal": "max", "at": "best"},
        official=next(iter(next(iter(_NUMBERS[task].values())))),
        starts_from=TASKS[task].starts_from,
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: GlueOptions,
) -> dict[str, float]:
    """See `benchmarks.Benchmark.score`; the diagnostic set also has `mcc`, which for three classes is GLUE's R_3."""
    glue_task, part = TASKS[task], prepared.split(split)
    predictions = predict(glue_task, members, part)
    if folder is not None:
        ids = (record["id"] for record in part.records())
        write_predictions(folder / file_name(glue_task, split), glue_task, ids, predictions)
    answers = _answers(part)
    if answers is None:
        return {}
    if glue_task.kind == "regression":
        return {name: 100 * metrics.OF_PREDICTIONS[name](predictions, answers) for name in glue_task.metrics}
    counts = metrics.confusion(answers, predictions, num_classes=len(glue_task.labels))
    names = ("mcc", *glue_task.metrics) if split == "ax" else glue_task.metrics
    return {name: 100 * metrics.OF_COUNTS[name](counts) for name in names}


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `benchmarks.Benchmark.prediction_files`."""
    return (file_name(TASKS[task], split),)


def _answers(split: PreparedSplit) -> NDArray[Any] | None:
    """The right answers (N,); None if they are not known."""
    if "answer" in split.columns:
        return np.asarray(split.columns["answer"] == 0)
    return split.columns.get("label")
