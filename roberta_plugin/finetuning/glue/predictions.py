"""Raw outputs of one model or several -> predictions for a split, and the file that the leaderboard wants.

Shapes: N examples of a split, S its sequences, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.averaging import mean_probabilities
from roberta_plugin.finetuning.benchmarks import RawOutputs
from roberta_plugin.finetuning.glue.metrics import as_written
from roberta_plugin.finetuning.glue.ranking import decide
from roberta_plugin.finetuning.glue.tasks import GlueTask, Kind
from roberta_plugin.finetuning.prepared import PreparedSplit

HEADER = "index\tprediction"


def predict(glue_task: GlueTask, members: Sequence[RawOutputs], split: PreparedSplit) -> NDArray[Any]:
    """Predictions for a split (N,): ids of labels, or for STS-B numbers.

    The probabilities of the members of an ensemble are averaged: of labels, of a pair being right, or of a phrase among
    its rivals. Numbers are averaged as they are, then clipped to the task's limits and rounded to three decimals.
    """
    predictions = predict_ids(glue_task.kind, members, split)
    return as_written(predictions, glue_task.limits) if glue_task.kind == "regression" else predictions


def predict_ids(kind: Kind, members: Sequence[RawOutputs], split: PreparedSplit) -> NDArray[Any]:
    """Predictions for a split of any task of a kind (N,); numbers are neither clipped nor rounded."""
    return _PREDICT[kind]([member.logits for member in members if member.logits is not None], split)


def file_name(glue_task: GlueTask, split: str) -> str:
    """Name of the file of predictions for a split: the leaderboard's, or TASK.SPLIT.tsv where it has none."""
    source = glue_task.submission(split)
    return f"{source.submission}.tsv" if source else f"{glue_task.name}.{split}.tsv"


def write_predictions(path: Path, glue_task: GlueTask, ids: Iterable[str], predictions: NDArray[Any]) -> None:
    """Write the predictions for one split: ids of labels, or numbers (`metrics.as_written`)."""
    if glue_task.labels:
        words = [glue_task.labels[int(prediction)] for prediction in predictions]
    else:
        words = [f"{prediction:.3f}" for prediction in as_written(predictions, glue_task.limits)]
    with atomic_write(path, "w") as file:
        file.write(f"{HEADER}\n")
        file.writelines(f"{row_id}\t{word}\n" for row_id, word in zip(ids, words, strict=True))


def _probabilities(logits: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """(N, C) of each member -> their mean probabilities (N, C)."""
    num_examples, num_classes = logits[0].shape
    offsets = np.arange(0, logits[0].size + 1, num_classes)
    return mean_probabilities([each.reshape(-1) for each in logits], offsets).reshape(num_examples, num_classes)


def _predict_label(logits: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(N, C) of each member -> ids (N,)."""
    return np.asarray(_probabilities(logits).argmax(axis=1))


def _predict_number(logits: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(N, 1) of each member -> numbers (N,)."""
    mean: NDArray[np.float64] = np.mean([each[:, 0].astype(np.float64) for each in logits], axis=0)
    return mean


def _predict_best_pair(logits: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(N, 1) of each member -> 1 for the pairs that are right, 0 for the others (N,)."""
    beside_none = [np.concatenate([each, np.zeros_like(each)], axis=1) for each in logits]
    return decide(_probabilities(beside_none)[:, 0] - 0.5, split.columns["question"])


def _predict_best_phrase(logits: Sequence[NDArray[np.float32]], split: PreparedSplit) -> NDArray[Any]:
    """(S, 1) of each member -> 1 for the examples whose first phrase beats all its rivals, 0 for the others (N,)."""
    offsets = np.asarray(split.offsets)
    probabilities = mean_probabilities([each[:, 0] for each in logits], offsets)
    wins = probabilities[offsets[:-1]] >= np.maximum.reduceat(probabilities, offsets[:-1])
    return (wins & (np.diff(offsets) > 1)).astype(np.int64)


_PREDICT: dict[str, Callable[[Sequence[NDArray[np.float32]], PreparedSplit], NDArray[Any]]] = {
    "classification": _predict_label,
    "regression": _predict_number,
    "pair_ranking": _predict_best_pair,
    "phrase_ranking": _predict_best_phrase,
}
