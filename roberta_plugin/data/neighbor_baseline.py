"""Counts from both sides: what the tokens before and after a masked token predict of it, as a masked LM sees them.

A masked LM reads both neighbors of a masked token, so the bigram baseline, which reads the previous token alone,
flatters it. With c() the counts of pairs in the training text, p(w) of `unigram_probs`, C(l) and C(r) how often a token
that masking can choose follows l or precedes r, and pseudo-counts a and b:

    p(w | l)      = (c(l, w) + a p(w)) / (C(l) + a)
    p(w | r)      = (c(w, r) + b p(w)) / (C(r) + b)
    p(w | l, r)   = p(w | l) p(w | r) / p(w), normalized over w

The sum over w needs no loop over the vocabulary: it is a product of a sparse row and a sparse column,

    sum of (c(l, w) + a p(w)) (c(w, r) + b p(w)) / p(w)  =  sum of c(l, w) c(w, r) / p(w)  +  b C(l) + a C(r) + a b

The model does not always see the true neighbors: masking hides some, replaces some, and some lie beyond the block.
`see_neighbors` measures how often, and `NeighborScores.expect` weighs the scores of the cases by it.

Shapes: V ids, n places, B blocks, T positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.mmap_tokens import MmapTokens

KNOWN, UNKNOWN, REPLACED = range(3)
"""What the model may see of a neighbor: the true token, <mask> or nothing, another token."""
_CASES = {  # (left, right) -> the scores that hold for it; two replaced neighbors are rarer than 1 in 1,000
    (KNOWN, KNOWN): "both",
    (KNOWN, UNKNOWN): "left",
    (UNKNOWN, KNOWN): "right",
    (UNKNOWN, UNKNOWN): "none",
    (REPLACED, KNOWN): "other_and_known",
    (KNOWN, REPLACED): "other_and_known",
    (REPLACED, UNKNOWN): "other_alone",
    (UNKNOWN, REPLACED): "other_alone",
    (REPLACED, REPLACED): "other_alone",
}
_MOST_PLACES = 2**15
_MOST_WORK = 2**25  # entries of the columns that are read
_WORK_AT_ONCE = 2**21
_MOST_REPLACED = 2**12  # places that are scored with a random neighbor, too
_MOST_SEEN, _MASKED = 2**18, 2**20  # tokens of a text, and with all passes, that are masked to see neighbors


class Score(NamedTuple):
    """How well counts predict tokens."""

    loss: float
    """Mean, in bits."""
    accuracy: float
    """Percent."""


@dataclass(frozen=True, kw_only=True)
class NeighborScores:
    """The scores of counts by what is known of the neighbors."""

    both: Score
    left: Score
    """The previous token alone: bigrams."""
    right: Score
    none: Score
    """Unigrams."""
    other_and_known: Score
    """One neighbor was replaced by a random token, which counts take for the true one."""
    other_alone: Score
    """The only visible neighbor was replaced by a random token."""

    def expect(self, seen: NDArray[np.float64]) -> Score:
        """The score where neighbors look as in `seen` (3, 3), the shares of `see_neighbors`."""
        cases = [(seen[sides], getattr(self, name)) for sides, name in _CASES.items()]
        return Score(
            float(sum(share * score.loss for share, score in cases)),
            float(sum(share * score.accuracy for share, score in cases)),
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> NeighborScores:
        """The scores as `dataclasses.asdict` and JSON write them.

        Raises:
            ValueError, TypeError: if a number is missing or not finite.
        """
        scores = {name: Score(*map(float, numbers)) for name, numbers in content.items()}
        if not all(math.isfinite(number) for score in scores.values() for number in score):
            raise ValueError("a score of the neighbors is not a finite number")
        return cls(**scores)


def see_neighbors(masker: Masker, tokens: MmapTokens, *, block_length: int) -> NDArray[np.float64]:
    """How often a predicted token's left and right neighbors are known, unknown or replaced (3, 3); the sum is 1.

    Measured on the first tokens of a text in blocks of `block_length`, with the first position left for <s>; a short
    text is masked several times.
    """
    length = max(1, min(block_length - 1, tokens.num_tokens))
    ids = tokens.tokens_on_disk[:_MOST_SEEN].astype(np.int64)
    blocks = ids[: max(1, len(ids) // length) * length].reshape(-1, length)  # (n,) -> (B, T)
    times = max(1, _MASKED // max(1, blocks.size))
    blocks = np.tile(blocks, (times, 1))
    numbers, passes = np.arange(len(blocks)) % (len(blocks) // times), np.arange(len(blocks)) // (len(blocks) // times)
    masked = masker.mask(blocks, seed=0, passes=passes + 1, indices=numbers)
    states = np.where(masked.tokens == blocks, KNOWN, np.where(masked.tokens == masker.mask_id, UNKNOWN, REPLACED))
    beyond = np.full((len(blocks), 1), UNKNOWN)
    left = np.concatenate([beyond, states[:, :-1]], axis=1)
    right = np.concatenate([states[:, 1:], beyond], axis=1)
    is_predicted = masked.targets != masker.pad_id
    counts = np.bincount(3 * left[is_predicted] + right[is_predicted], minlength=9).reshape(3, 3)
    shares: NDArray[np.float64] = counts / max(1, counts.sum())
    return shares


class NeighborCounts:
    """The counts of a text, ready to predict a token from those beside it.

    Args:
        pairs: how often the second id follows the first (V, V), sparse by rows.
        probs: the unigram probability of each id (V,), 0 for those that masking cannot choose.
        pseudo_counts: a and b.
    """

    def __init__(self, pairs: Any, probs: NDArray[np.float64], *, pseudo_counts: tuple[float, float]) -> None:
        self.probs = probs
        self.left_pseudo_counts, self.right_pseudo_counts = pseudo_counts
        is_scored = sparse.diags((probs > 0).astype(pairs.dtype), dtype=pairs.dtype)
        self.after = (pairs @ is_scored).tocsr()  # c(l, w) by rows l
        self.before = (is_scored @ pairs).T.tocsr()  # c(w, r) by rows r
        self.after.sort_indices()
        self.before.sort_indices()
        self._left_totals = np.asarray(self.after.sum(axis=1)).ravel()
        self._right_totals = np.asarray(self.before.sum(axis=1)).ravel()

    def score(
        self, left: NDArray[np.int64], target: NDArray[np.int64], right: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The loss in bits of each target (n,), and if it is the most probable token.

        An id that occurs in no pair, such as <pad>, is an unknown neighbor.
        """
        losses, is_right = np.empty(len(target)), np.empty(len(target), dtype=np.bool_)
        count = np.asarray(self.before[right, target]).ravel()  # c(w, r) of the targets
        for places in self._in_parts(np.lexsort((right, left)), left, right):
            losses[places], is_right[places] = self._score_beside(
                int(left[places[0]]), target[places], right[places], count[places]
            )
        return losses, is_right

    def work(self, right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Entries of the column of each right neighbor (n,), which the time to score it grows with."""
        work: NDArray[np.int64] = np.diff(self.before.indptr)[right].astype(np.int64) + 1
        return work

    def _in_parts(
        self, order: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        """Places with the same left neighbor, of limited work each."""
        done = np.cumsum(self.work(right[order])) // _WORK_AT_ONCE
        begins = np.flatnonzero((np.diff(left[order]) != 0) | (np.diff(done) != 0)) + 1
        yield from (part for part in np.split(order, begins) if len(part))

    def _score_beside(
        self, left: int, target: NDArray[np.int64], right: NDArray[np.int64], count: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Scores of targets (n,) behind one and the same left neighbor; `count` (n,) is c(w, r)."""
        a, b, probs = self.left_pseudo_counts, self.right_pseudo_counts, self.probs
        from_left = a * probs  # (V,), proportional to p(w | l)
        start, stop = self.after.indptr[left : left + 2]
        from_left[self.after.indices[start:stop]] += self.after.data[start:stop]
        best_alone = int(from_left.argmax())  # the best of all w for which c(w, r) is 0

        rights, where = np.unique(right, return_inverse=True)
        starts, sizes = self.before.indptr[rights], np.diff(self.before.indptr)[rights]
        owner = np.repeat(np.arange(len(rights)), sizes)
        entries = np.arange(len(owner)) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        words, numbers = self.before.indices[entries], self.before.data[entries]
        seen = from_left[words] * numbers / probs[words]  # beyond b times from_left
        totals = np.bincount(owner, seen, len(rights)) + b * (self._left_totals[left] + a)

        values = seen + b * from_left[words]
        best = np.full(len(rights), best_alone)
        has_entries = sizes > 0
        highest = np.full(len(rights), -np.inf)
        highest[has_entries] = (
            np.maximum.reduceat(values, (np.cumsum(sizes) - sizes)[has_entries]) if len(values) else 0
        )
        is_better = highest > b * from_left[best_alone]
        is_best = (values == highest[owner]) & is_better[owner]
        best[owner[is_best][::-1]] = words[is_best][::-1]  # of equal values the first

        value = from_left[target] * (count + b * probs[target]) / probs[target]
        losses = np.log2(totals[where]) - np.log2(value)
        return losses, best[where] == target


def score_neighbors(
    counts: NeighborCounts, left: NDArray[np.int64], target: NDArray[np.int64], right: NDArray[np.int64], *, no_id: int
) -> NeighborScores:
    """The scores of tokens (n,) between their neighbors, or of as many of them, drawn at random, as take seconds.

    `no_id` is an id that occurs in no pair.
    """
    random = np.random.default_rng(0)
    order = random.permutation(len(target))[:_MOST_PLACES]
    limit = int(np.searchsorted(np.cumsum(counts.work(right[order])), _MOST_WORK, side="right"))
    order = order[: max(limit, 1)]
    some = order[:_MOST_REPLACED]
    unknown, other = np.full(len(target), no_id), random.choice(np.flatnonzero(counts.probs), len(target))

    def score(*cases: tuple[NDArray[np.int64], NDArray[np.int64]], places: NDArray[np.int64] = order) -> Score:
        results = [counts.score(before[places], target[places], after[places]) for before, after in cases]
        loss, is_right = (np.mean([result[part].mean() for result in results]) for part in range(2))
        return Score(float(loss), 100 * float(is_right))

    return NeighborScores(
        both=score((left, right)),
        left=score((left, unknown)),
        right=score((unknown, right)),
        none=score((unknown, unknown)),
        other_and_known=score((other, right), (left, other), places=some),
        other_alone=score((other, unknown), (unknown, other), places=some),
    )
