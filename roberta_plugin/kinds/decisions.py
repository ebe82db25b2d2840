"""Raw outputs of one model or several -> decisions for a split.

Shapes: N examples of a split, S its sequences, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.averaging import mean_probabilities
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.pair_ranking import decide


def predict_ids(kind: str, members: Sequence[RawOutputs], split: PreparedSplit) -> NDArray[Any]:
    """Predictions for a split of any task of a kind (N,); numbers are neither clipped nor rounded."""
    return _PREDICT[kind]([member.logits for member in members if member.logits is not None], split)


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
