"""Measures of vectors: the cosine of two texts, and the rank of the right text among all texts.

The functions take dense vectors of a model, or sparse vectors of TF-IDF, the baseline. For several models, their
cosines are averaged.

Shapes: N queries, C candidates, D dimensions; S texts, K texts of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = Any
"""Rows of length 1: a dense array, or a sparse matrix (S, D)."""
CUTS = (1, 5, 10)
"""K of recall@K."""
_AT_ONCE = 2**24  # largest number of cosines in memory


def unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Divide vectors (S, D) by their lengths; zeros stay zeros."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return wide / np.where(lengths > 0, lengths, 1.0)


def cosines(members: Sequence[Vectors], first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """The cosine of each pair (N,) of the rows `first` (N,) and `second` (N,), as the mean over members."""
    of_members = []
    for vectors in members:
        products = vectors[first] * vectors[second] if isinstance(vectors, np.ndarray) else None
        if products is None:
            products = vectors[first].multiply(vectors[second])
        of_members.append(np.asarray(products.sum(axis=1), dtype=np.float64).ravel())
    return np.asarray(np.mean(of_members, axis=0))


def ranks(members: Sequence[Vectors], texts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The rank of each query's right text among all candidates (N,), from 1 on, and the row of the best one (N,).

    Candidates are all texts except the queries, each once. Candidates that are also right do not count: other right
    texts of the same query, and the query itself. Texts that are as near as the right one count half.

    Args:
        members: vectors (N * K, D) of each model.
        texts: numbers of the texts (N, K), which equal texts share: a query, its right text, and wrong texts.
    """
    num_rows, width = texts.shape
    rows = np.arange(num_rows * width).reshape(texts.shape)
    distinct, place = np.unique(texts[:, 1:], return_index=True)
    candidates = rows[:, 1:].ravel()[place]  # (C,)
    targets = np.searchsorted(distinct, texts[:, 1])
    also_right = _also_right(texts, distinct, targets)
    rank, best = np.empty(num_rows), np.empty(num_rows, dtype=np.int64)
    step = max(1, _AT_ONCE // len(distinct))
    for start in range(0, num_rows, step):
        part = range(start, min(start + step, num_rows))
        products = [each[rows[part, 0]] @ each[candidates].T for each in members]
        near = np.mean(
            [each if isinstance(each, np.ndarray) else each.toarray() for each in products], axis=0
        )  # (n, C)
        of_target = near[np.arange(len(part)), targets[part]][:, None].copy()
        for number, row in enumerate(part):
            near[number, also_right[row]] = -np.inf
        is_equal = np.abs(near - of_target) <= 1e-9  # cosines of equal vectors may differ by a rounding
        rank[part] = 0.5 + ((near > of_target) & ~is_equal).sum(axis=1) + 0.5 * is_equal.sum(axis=1)
        best[part] = candidates[near.argmax(axis=1)]
    return rank, best


def _also_right(
    texts: NDArray[np.int64], distinct: NDArray[np.int64], targets: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """For each query, the candidates that are neither its target nor wrong."""
    of_query: dict[int, set[int]] = {}
    for query, target in zip(texts[:, 0].tolist(), targets.tolist(), strict=True):
        of_query.setdefault(query, set()).add(target)
    place_of = {text: place for place, text in enumerate(distinct.tolist())}
    for query, places in of_query.items():
        if query in place_of:
            places.add(place_of[query])
    return [
        np.array(sorted(of_query[query] - {target}), dtype=np.int64)
        for query, target in zip(texts[:, 0].tolist(), targets.tolist(), strict=True)
    ]


def rank_measure(ranks: NDArray[np.float64]) -> Callable[[NDArray[Any]], dict[str, float]]:
    """A function of the queries' weights (N,): mean reciprocal rank and recall@K of ranks (N,), in percent."""

    def measure(weights: NDArray[Any]) -> dict[str, float]:
        share = weights / weights.sum()
        recalls = {f"recall@{cut}": 100 * float(share @ (ranks <= cut)) for cut in CUTS}
        return {"mrr": 100 * float(share @ (1 / ranks)), **recalls}

    return measure
