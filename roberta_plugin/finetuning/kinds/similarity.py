"""How good vectors are: the cosine of two texts beside a score, and the rank of the right text among all; TF-IDF.

The functions take vectors of any origin: dense ones of a model, or sparse ones of TF-IDF, the baseline. Those of
several models are averaged as cosines.

What a model that chooses labels of texts has to beat is TF-IDF of the tokens with logistic regression. It reads the
same inputs as the model, cut to the same length; the two texts of a pair have columns of their own. TF-IDF and
regression have scikit-learn's defaults, and the weights of the labels.

Shapes: N queries or examples, C candidates or labels, D dimensions; S texts, V words.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit

Vectors = Any
"""Rows of length 1: a dense array, or a sparse matrix (S, D)."""
CUTS = (1, 5, 10)
"""K of recall@K."""
_AT_ONCE = 2**24  # cosines in memory at a time


def unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Vectors (S, D) with the length 1; zeros stay zeros."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return wide / np.where(lengths > 0, lengths, 1.0)


def tf_idf(sequences: Sequence[NDArray[Any]], *, training: Sequence[NDArray[Any]], num_ids: int) -> sparse.csr_matrix:
    """Sequences of ids -> scikit-learn's TF-IDF of their words, with length 1 (S, V).

    Args:
        sequences: ids of each text.
        training: the texts of the training set, from which frequencies are counted.
        num_ids: V.
    """
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer().fit(_counts(training, num_ids)).transform(_counts(sequences, num_ids))


def _counts(sequences: Sequence[NDArray[Any]], num_ids: int) -> sparse.csr_matrix:
    sizes = np.array([len(ids) for ids in sequences])
    columns = np.concatenate(sequences) if len(sequences) else np.empty(0)
    ones, borders = np.ones(len(columns)), np.concatenate([[0], np.cumsum(sizes)])
    matrix = sparse.csr_matrix((ones, columns, borders), shape=(len(sizes), num_ids))
    matrix.sum_duplicates()
    return matrix


def cosines(members: Sequence[Vectors], first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """The cosine of each pair (N,) of the rows `first` (N,) and `second` (N,), the mean over members."""
    of_members = []
    for vectors in members:
        products = vectors[first] * vectors[second] if isinstance(vectors, np.ndarray) else None
        if products is None:
            products = vectors[first].multiply(vectors[second])
        of_members.append(np.asarray(products.sum(axis=1), dtype=np.float64).ravel())
    return np.asarray(np.mean(of_members, axis=0))


def ranks(members: Sequence[Vectors], texts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The rank of the right text of each query among all candidates (N,), from 1 on, and the row of the best one (N,).

    Candidates are all texts but the queries, each once. Not counted are those that are right as well: other positives
    of the same query, and the query itself. Texts that are as near as the right one count half.

    Args:
        members: vectors (N * K, D) of each model.
        texts: numbers of the texts (N, K): a query, the right text, and wrong ones; the same for equal texts.
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
    """How often each query counts (N,) -> mean reciprocal rank and recall@K, in percent, of ranks (N,)."""

    def measure(weights: NDArray[Any]) -> dict[str, float]:
        share = weights / weights.sum()
        recalls = {f"recall@{cut}": 100 * float(share @ (ranks <= cut)) for cut in CUTS}
        return {"mrr": 100 * float(share @ (1 / ranks)), **recalls}

    return measure


NAME = "TF-IDF with logistic regression"
MOST_ROWS, MOST_OUTPUTS = 100_000, 2_000_000  # about a minute of one core
_NEVER = -100.0


class BagOfWords:
    """The baseline `NAME`, fitted on the training set of a prepared folder when it is first asked."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._fitted: tuple[list[NDArray[Any]], list[Any]] | None = None

    def skipped(self) -> str:
        """Why it is left out, as a sentence; empty if it is not."""
        rows, labels = len(self._prepared.split("train")), len(self._prepared.settings.get("labels") or ())
        if rows > MOST_ROWS or rows * labels > MOST_OUTPUTS:
            return f"{NAME}, the baseline, is left out for {rows:,} rows and {labels:,} labels: it would take too long."
        column = self._prepared.split("train").columns.get("label")
        if column is not None and len(np.unique(np.asarray(column))) < 2:
            return f"{NAME}, the baseline, is left out: the training set has one label only."
        return ""

    def outputs(self, split: PreparedSplit) -> RawOutputs:
        """Its logits (N, C) for a split, in the form of a model's."""
        if self._fitted is None:
            self._fitted = self._fit()
        training, models = self._fitted
        features = self._features(split, training)
        logits = np.full((len(split), len(self._prepared.settings["labels"])), _NEVER, dtype=np.float32)
        for number, model in enumerate(models):
            if isinstance(model, float):
                logits[:, number] = model
                continue
            scores = np.asarray(model.decision_function(features))
            if len(models) > 1:
                logits[:, number] = scores
            else:  # of two labels, the log-odds of the second; training may lack labels
                logits[:, model.classes_] = (
                    scores if scores.ndim == 2 else np.stack([np.zeros(len(scores)), scores], axis=1)
                )
        return RawOutputs(logits=logits)

    def _fit(self) -> tuple[list[NDArray[Any]], list[Any]]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        train = self._prepared.split("train")
        training = self._words(train)
        features, weights = self._features(train, training), self._prepared.settings.get("weights")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if "label" in train.columns:
                labels = np.asarray(train.columns["label"])
                by_label = None if weights is None else dict(enumerate(weights))
                return training, [LogisticRegression(class_weight=by_label).fit(features, labels)]
            models: list[Any] = []
            for number, present in enumerate(np.asarray(train.columns["labels"], dtype=bool).T):
                if present.all() or not present.any():
                    models.append(-_NEVER if present.all() else _NEVER)
                else:
                    by_label = None if weights is None else {True: weights[number]}
                    models.append(LogisticRegression(class_weight=by_label).fit(features, present))
        return training, models

    def _words(self, split: PreparedSplit) -> list[NDArray[Any]]:
        """The columns of each example: its ids; those of a second text are raised by the size of the vocabulary."""
        vocabulary, offsets = self._prepared.vocabulary, split.offsets.tolist()
        columns = []
        for first, stop in pairwise(offsets):
            words = []
            for number in range(first, stop):
                ids = np.asarray(split.sequences[number], dtype=np.int64)
                is_end = ids == vocabulary.eos_id
                second = np.cumsum(is_end) > 0
                words.append((ids + second * len(vocabulary))[~is_end & (ids != vocabulary.bos_id)])
            columns.append(np.concatenate(words))
        return columns

    def _features(self, split: PreparedSplit, training: list[NDArray[Any]]) -> sparse.csr_matrix:
        """TF-IDF (N, V)."""
        words = training if split.name == "train" else self._words(split)
        return tf_idf(words, training=training, num_ids=2 * len(self._prepared.vocabulary))
