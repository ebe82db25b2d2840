"""Precision, recall and F1 of entities, as conlleval and seqeval define them, and the accuracy of tags.

An entity is right if its first word, its last word and its type are. Labels are numbered as in `labels`, and sequences
that are not valid are read as conlleval reads them.

Shapes: W words, sentence after sentence; S sentences; K types.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CORRECT, FOUND, GOLD = range(3)  # columns of counts


def spans(labels: NDArray[np.int64], is_first: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first word of each entity, and the word after its last one.

    Example: with one type (0 O, 1 B, 2 I) and sentences of 3 and 2 words, the labels 2 2 1 | 2 0 have the entities 0 to
    2, 2 to 3 and 3 to 4.

    Args:
        labels: of all words (W,).
        is_first: whether a word is the first one of its sentence (W,).
    """
    before = np.concatenate([[0], labels[:-1]])
    same_type = (before > 0) & ((before - 1) // 2 == (labels - 1) // 2)
    continues = (labels > 0) & (labels % 2 == 0) & same_type & ~is_first
    starts = np.flatnonzero((labels > 0) & ~continues)
    ends = np.append(np.flatnonzero(~continues), len(labels))
    return starts, ends[np.searchsorted(ends, starts, side="right")]


def count_entities(
    gold: NDArray[np.int64], found: NDArray[np.int64], is_first: NDArray[np.bool_], *, num_types: int
) -> NDArray[np.float64]:
    """How many entities of each type are correct, found and there (K, 3), from labels of words (W,)."""
    counts: NDArray[np.float64] = entities_by_sentence(gold, found, is_first, num_types=num_types).sum(axis=0)
    return counts


def entities_by_sentence(
    gold: NDArray[np.int64], found: NDArray[np.int64], is_first: NDArray[np.bool_], *, num_types: int
) -> NDArray[np.float64]:
    """The same for each sentence with words (S, K, 3)."""
    sentence: NDArray[np.int64] = np.maximum(np.cumsum(is_first) - 1, 0)  # (W,)
    shape = max(1, int(is_first.sum())), num_types
    counts = np.zeros((*shape, 3))
    (gold_starts, gold_stops), (starts, stops) = spans(gold, is_first), spans(found, is_first)
    stop_at = np.full(len(gold) + 1, -1)
    stop_at[gold_starts] = gold_stops
    types = (found[starts] - 1) // 2
    # an entity of the same type as its first word's label, which may be B in one and I in the other
    is_correct = (stop_at[starts] == stops) & (types == (gold[starts] - 1) // 2)
    for column, first, chosen in (
        (CORRECT, starts[is_correct], types[is_correct]),
        (FOUND, starts, types),
        (GOLD, gold_starts, (gold[gold_starts] - 1) // 2),
    ):
        counts[:, :, column] = np.bincount(
            sentence[first] * num_types + chosen, minlength=counts[:, :, 0].size
        ).reshape(shape)
    return counts


def scores(counts: NDArray[np.float64]) -> tuple[float, float, float]:
    """Precision, recall and F1 (percent) from counts (3,); 0 where there is nothing to divide by.

    Example: 2 correct of 4 found and 8 there -> 50, 25, 33.3.
    """
    precision = 100.0 * counts[CORRECT] / counts[FOUND] if counts[FOUND] else 0.0
    recall = 100.0 * counts[CORRECT] / counts[GOLD] if counts[GOLD] else 0.0
    total = precision + recall
    return float(precision), float(recall), float(2 * precision * recall / total) if total else 0.0


def evaluate(
    gold: NDArray[np.int64], found: NDArray[np.int64], is_first: NDArray[np.bool_], types: Sequence[str] | None
) -> dict[str, float]:
    """All metrics (percent), from labels of words (W,).

    Args:
        gold: right labels.
        found: given labels.
        is_first: whether a word is the first one of its sentence.
        types: of the entities; None if the labels are plain tags, which have an accuracy only.

    Returns:
        f1, precision and recall over all entities, accuracy of the words' tags, and f1_TYPE, precision_TYPE and
        recall_TYPE of each type that `gold` has; others cannot be measured.
    """
    accuracy = 100.0 * float((gold == found).sum()) / len(gold)
    if types is None:
        return {"accuracy": accuracy}
    counts = count_entities(gold, found, is_first, num_types=len(types))
    precision, recall, f1 = scores(counts.sum(axis=0))
    result = {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy}
    for type_, row in zip(types, counts, strict=True):
        if row[GOLD]:
            result |= dict(zip((f"precision_{type_}", f"recall_{type_}", f"f1_{type_}"), scores(row), strict=True))
    return result
