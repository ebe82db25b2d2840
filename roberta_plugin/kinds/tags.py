"""The words of a prepared split; outputs of windows -> the label of each word: the best, or the best valid sequence.

In IOB2, I-TYPE follows only B-TYPE or I-TYPE. The most probable sequence under this rule, with the words independent of
each other otherwise, is found by the algorithm of Viterbi, for many sentences at once.

Shapes: N windows and W words of the split, S sentences, C labels, T_s tokens of window s; B
sentences of a batch, L words of its longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.outputs import RawOutputs

_IMPOSSIBLE = -1e9  # a label of probability 0: worse than any other, better than a sequence that is not valid
_MOST_NUMBERS = 1 << 22  # of an array at a time


class Sentences:
    """The words of a prepared split, as `prepare` has written them."""

    def __init__(self, split: PreparedSplit) -> None:
        self.split = split
        self.positions = np.asarray(split.array("positions"), dtype=np.int64)
        """Place of each word's first token in its window; 0 for a word without one (W,)."""
        self.offsets = np.asarray(split.array("sentences"), dtype=np.int64)
        """Sentence i has the words offsets[i] to offsets[i + 1] (S + 1,)."""
        self._first_word = np.append(np.asarray(split.columns["first_word"], dtype=np.int64), len(self))
        if self.offsets[0] != 0 or self.offsets[-1] != len(self) or (np.diff(self._first_word) < 0).any():
            raise ValueError(
                f"{split.folder}, {split.name}: the words are not divided among the windows: prepare again."
            )

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def is_labelled(self) -> bool:
        """Whether the tags of the words are known."""
        return "tags" in self.split.facts["arrays"]

    @cached_property
    def tags(self) -> NDArray[np.int64]:
        """Labels of the words (W,); only of a labelled split."""
        return np.asarray(self.split.array("tags"), dtype=np.int64)

    @cached_property
    def windows(self) -> NDArray[np.int64]:
        """The window that each word belongs to (W,)."""
        return np.repeat(np.arange(len(self.split)), np.diff(self._first_word))

    @cached_property
    def is_first(self) -> NDArray[np.bool_]:
        """Whether each word is the first one of its sentence (W,)."""
        is_first = np.zeros(len(self), dtype=np.bool_)
        is_first[self.offsets[:-1][np.diff(self.offsets) > 0]] = True
        return is_first

    def rows(self, outputs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Probabilities of the tokens of each window (T_s, C) -> those of the words (W, C).

        A word without a token has label 0.
        """
        rows = self._first_tokens(outputs)
        rows[self.positions == 0] = np.eye(1, rows.shape[1])
        return rows

    def _first_tokens(self, outputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """What the tokens of each window have (T_s, ...) -> what the first token of each word has (W, ...)."""
        starts = np.cumsum([0, *(len(each) for each in outputs)])
        found: NDArray[Any] = np.concatenate(outputs)[starts[self.windows] + self.positions]
        return found

    def decided(
        self, members: Sequence[RawOutputs], labels: Sequence[str], *, valid_sequences: bool = False
    ) -> NDArray[np.int64]:
        """The most probable label of each word (W,); the probabilities of several members are averaged."""
        if len(members) == 1 and members[0].token_labels is not None:
            return self._first_tokens(members[0].token_labels).astype(np.int64) * (self.positions > 0)
        logits = [member.token_logits for member in members if member.token_logits is not None]
        assert len(logits) == len(members) > 0, "these are not outputs of a tagging head"
        probabilities: NDArray[np.float64] = np.mean(
            [
                self.rows([scipy.special.softmax(each.astype(np.float64), axis=1) for each in outputs])
                for outputs in logits
            ],
            axis=0,
        )  # (W, C)
        if valid_sequences:
            return best_valid(probabilities, self.offsets, labels)
        best: NDArray[np.int64] = probabilities.argmax(axis=1)
        return best


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
