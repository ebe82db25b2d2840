"""Probabilities of the words' labels -> labels: each word's best one, or the best sequence that is valid in IOB2.

In IOB2, I-TYPE follows only B-TYPE or I-TYPE. The most probable sequence under this rule, with the words independent of
each other otherwise, is found by the algorithm of Viterbi, for many sentences at once.

Shapes: W words, sentence after sentence; C labels; B sentences of a batch, L words of its longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_IMPOSSIBLE = -1e9  # a label of probability 0: worse than any other, better than a sequence that is not valid
_MOST_NUMBERS = 1 << 22  # of an array at a time


def transitions(labels: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which label may begin a sentence (C,), and which one may follow which: [before, after] (C, C).

    A type of which there is no B-TYPE, as in IOB1, has no rule.

    Example: of O, B-X, I-X all may follow each other, but I-X not O; and I-X may not begin.
    """
    needs_before = [label[0] == "I" and f"B{label[1:]}" in labels for label in labels]
    follows = np.array(
        [
            [
                not needs or (before[0] in "BI" and before[1:] == after[1:])
                for after, needs in zip(labels, needs_before, strict=True)
            ]
            for before in labels
        ]
    )
    return ~np.array(needs_before), follows


def best_valid(
    probabilities: NDArray[np.float64], offsets: NDArray[np.int64], labels: Sequence[str]
) -> NDArray[np.int64]:
    """The most probable valid labels of all words (W,).

    Args:
        probabilities: of each word's labels (W, C).
        offsets: sentence i has the words offsets[i] to offsets[i + 1].
        labels: names of the labels.
    """
    with np.errstate(divide="ignore"):
        scores = np.maximum(np.log(probabilities), _IMPOSSIBLE)  # (W, C)
    begins, follows = transitions(labels)
    barred = np.where(follows, 0.0, -np.inf)
    result = np.zeros(len(scores), dtype=np.int64)
    for sentences in _batches(np.diff(offsets), len(labels)):
        first, counts = offsets[sentences], np.diff(offsets)[sentences]  # (B,), longest first
        best = np.where(begins, scores[first], -np.inf)  # (B, C)
        origins = []
        for place in range(1, counts[0]):
            active = int((counts > place).sum())
            paths = best[:active, :, None] + barred  # (B, C) -> (B, C before, C after)
            origins.append(paths.argmax(axis=1))  # (B, C)
            best[:active] = paths.max(axis=1) + scores[first[:active] + place]
        label = best.argmax(axis=1)  # (B,), of the last word of each sentence
        for place in range(counts[0] - 1, 0, -1):
            active = int((counts > place).sum())
            result[first[:active] + place] = label[:active]
            label[:active] = origins[place - 1][np.arange(active), label[:active]]
        result[first] = label
    return result


def _batches(counts: NDArray[np.int64], num_labels: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of the sentences with words, the longest first, in batches of limited memory."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    start = 0
    while start < len(order):
        size = max(1, _MOST_NUMBERS // (num_labels * max(num_labels, int(counts[order[start]]))))
        yield order[start : start + size]
        start += size
