"""TF-IDF of the tokens of texts, and logistic regression on it: a baseline for models that choose labels of texts.

The baseline reads the same inputs as the model, cut to the same length. The two texts of a pair have separate columns.
TF-IDF and regression use scikit-learn's defaults, and the weights of the labels.

Shapes: N examples, C labels; S texts, V words.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit

NAME = "TF-IDF with logistic regression"
MOST_ROWS, MOST_OUTPUTS = 100_000, 2_000_000  # about a minute of one core
_NEVER = -100.0


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


class BagOfWords:
    """The baseline `NAME`; it is fitted on the training set of a prepared folder when `outputs` is first called."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._fitted: tuple[list[NDArray[Any]], list[Any]] | None = None

    def skipped(self) -> str:
        """A sentence on why the baseline is left out; empty if it is not."""
        rows, labels = len(self._prepared.split("train")), len(self._prepared.settings.get("labels") or ())
        if rows > MOST_ROWS or rows * labels > MOST_OUTPUTS:
            return f"{NAME}, the baseline, is left out for {rows:,} rows and {labels:,} labels: it would take too long."
        column = self._prepared.split("train").columns.get("label")
        if column is not None and len(np.unique(np.asarray(column))) < 2:
            return f"{NAME}, the baseline, is left out: the training set has only one label."
        return ""

    def outputs(self, split: PreparedSplit) -> RawOutputs:
        """The baseline's logits (N, C) for a split, in the form of a model's."""
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
            else:  # for two labels, scikit-learn gives the log-odds of the second; training may not have all labels
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
        """The columns of each example: its ids, plus the size of the vocabulary in a second text."""
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
