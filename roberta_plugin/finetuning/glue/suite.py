"""GLUE as a suite (`finetuning/suites.py`): prepare, recipe, score, and the paper's numbers.

Shapes: N examples of a split, S its sequences, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.averaging import mean_probabilities
from roberta_plugin.finetuning.glue import metrics
from roberta_plugin.finetuning.glue.prepare import prepare as prepare
from roberta_plugin.finetuning.glue.prepare import raw_files as raw_files
from roberta_plugin.finetuning.glue.prepare import settings as settings
from roberta_plugin.finetuning.glue.ranking import decide
from roberta_plugin.finetuning.glue.submission import file_name, write_predictions
from roberta_plugin.finetuning.glue.tables import TABLES
from roberta_plugin.finetuning.paper_settings import COMMON, schedule
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.suites import RawOutputs, Recipe

TASKS = tuple(TABLES)
_LARGE, _BASE, _TEST = "RoBERTa large", "RoBERTa base", "RoBERTa large, test, ensemble"
# Table 5 (large on dev, ensembles on test) and Table 8 (base on dev). The paper gives one number a task: accuracy, for
# CoLA Matthews and for STS-B Pearson; on test, MRPC's is F1.
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
PREPARING_OPTIONS: tuple[str, ...] = ()
SCORING_OPTIONS: tuple[str, ...] = ()

_EPOCHS = 10


def recipe(task: str, prepared: Prepared, *, epochs: int | None = None) -> Recipe:
    """The paper's Table 10: {1,2,3}e-5 and batches of 16 or 32 for 10 epochs, the median of five seeds."""
    num_examples = len(prepared.split("train"))
    name = "roberta_sentence_prediction"
    return Recipe(
        train={"task": name, "criterion": name, **COMMON, "weight-decay": "0.1"},
        axes={
            "lr": ["1e-5", "2e-5", "3e-5"],
            "batch": {
                str(size): schedule(num_examples, batch_size=size, epochs=epochs or _EPOCHS) for size in (16, 32)
            },
        },
        seeds=["1", "2", "3", "4", "5"],
        metric={"log": "valid", "value": TABLES[task].selection, "goal": "max", "at": "best"},
        starts_from=TABLES[task].starts_from,
    )


def score(
    task: str,
    prepared: Prepared,
    split: str,
    members: Sequence[RawOutputs],
    *,
    folder: Path | None,
    options: Mapping[str, str],
) -> dict[str, float]:
    """See `suites.Suite.score`.

    An ensemble averages the probabilities of labels, of a pair being right, or of a phrase among its rivals; numbers
    are averaged as they are, and then written, and scored, within the task's limits and with three decimals. The
    diagnostic set has `mcc`, which for three classes is GLUE's R_3.
    """
    if options:
        raise ValueError(f"Evaluating {task} takes no options, got {', '.join(sorted(options))}.")
    table, part = TABLES[task], prepared.split(split)
    scores = [member.scores for member in members if member.scores is not None]
    predictions = _PREDICT[table.kind](scores, part)
    if table.kind == "regression":
        predictions = metrics.as_written(predictions, table.limits)
    if folder is not None:
        ids = (record["id"] for record in part.records())
        write_predictions(folder / file_name(table, split), table, ids, predictions)
    answers = _answers(part)
    if answers is None:
        return {}
    if table.kind == "regression":
        return {name: 100 * metrics.OF_PREDICTIONS[name](predictions, answers) for name in table.metrics}
    counts = metrics.confusion(answers, predictions, num_classes=len(table.labels))
    names = ("mcc", *table.metrics) if split == "ax" else table.metrics
    return {name: 100 * metrics.OF_COUNTS[name](counts) for name in names}


def prediction_files(task: str, split: str) -> tuple[str, ...]:
    """See `suites.Suite.prediction_files`."""
    return (file_name(TABLES[task], split),)


def _answers(split: PreparedSplit) -> NDArray[Any] | None:
    """What is right (N,), where it is known."""
    if "answer" in split.columns:
        return np.asarray(split.columns["answer"] == 0)
    return split.columns.get("label")


def _probabilities(scores: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """(N, C) of each member -> their mean probabilities (N, C)."""
    num_examples, num_classes = scores[0].shape
    first = np.arange(0, scores[0].size + 1, num_classes)
    return mean_probabilities([each.reshape(-1) for each in scores], first).reshape(num_examples, num_classes)


def _predict_label(scores: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(N, C) of each member -> ids (N,)."""
    return np.asarray(_probabilities(scores).argmax(axis=1))


def _predict_number(scores: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(N, 1) of each member -> numbers (N,)."""
    mean: NDArray[np.float64] = np.mean([each[:, 0].astype(np.float64) for each in scores], axis=0)
    return mean


def _predict_best_pair(scores: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(N, 1) of each member -> 1 for the pairs that are right, 0 for the others (N,)."""
    beside_none = [np.concatenate([each, np.zeros_like(each)], axis=1) for each in scores]
    return decide(_probabilities(beside_none)[:, 0] - 0.5, split.columns["question"])


def _predict_best_phrase(scores: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(S, 1) of each member -> 1 for the examples whose first phrase beats all its rivals, 0 for the others (N,)."""
    first = np.asarray(split.first)
    chances = mean_probabilities([each[:, 0] for each in scores], first)
    wins = chances[first[:-1]] >= np.maximum.reduceat(chances, first[:-1])
    return (wins & (np.diff(first) > 1)).astype(np.int64)


_PREDICT: dict[str, Callable[[Sequence[NDArray[np.float32]], PreparedSplit], NDArray[Any]]] = {
    "classification": _predict_label,
    "regression": _predict_number,
    "pair_ranking": _predict_best_pair,
    "phrase_ranking": _predict_best_phrase,
}
