"""What one wants to beat: TF-IDF of the tokens with logistic regression, for kinds that choose labels of texts.

It reads the same inputs as the model, cut to the same length; the two texts of a pair have columns of their own. TF-IDF
(`similarity.tf_idf`) and regression have scikit-learn's defaults, and the weights of the labels.

Shapes: N examples, C labels, V columns.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.similarity import tf_idf
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit

NAME = "TF-IDF with logistic regression"
MOST_ROWS, MOST_OUTPUTS = 100_000, 2_000_000  # about a minute of one core
_NEVER = -100.0


class BagOfWords:
    """Fitted on the training set of a prepared folder when it is first asked."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._fitted: tuple[list[NDArray[Any]], list[Any]] | None = None

    def skipped(self) -> str:
        """Why it is left out, as a sentence; empty if it is not."""
        rows, labels = len(self._prepared.split("train")), len(self._prepared.settings.get("labels") or ())
        if rows > MOST_ROWS or rows * labels > MOST_OUTPUTS:
            return f"{NAME}, the baseline, is left out for {rows:,} rows and {labels:,} labels: it would take too long."
        found = self._prepared.split("train").columns.get("label")
        if found is not None and len(np.unique(np.asarray(found))) < 2:
            return f"{NAME}, the baseline, is left out: the training set has one label only."
        return ""

    def outputs(self, split: PreparedSplit) -> RawOutputs:
        """Its logits (N, C) for a split, in the form of a model's."""
        if self._fitted is None:
            self._fitted = self._fit()
        known, models = self._fitted
        features = self._features(split, known)
        logits = np.full((len(split), len(self._prepared.settings["labels"])), _NEVER, dtype=np.float32)
        for number, model in enumerate(models):
            if isinstance(model, float):
                logits[:, number] = model
                continue
            found = np.asarray(model.decision_function(features))
            if len(models) > 1:
                logits[:, number] = found
            else:  # of two labels, the log-odds of the second; training may lack labels
                logits[:, model.classes_] = (
                    found if found.ndim == 2 else np.stack([np.zeros(len(found)), found], axis=1)
                )
        return RawOutputs(logits=logits)

    def _fit(self) -> tuple[list[NDArray[Any]], list[Any]]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        train = self._prepared.split("train")
        known = self._words(train)
        features, weights = self._features(train, known), self._prepared.settings.get("weights")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if "label" in train.columns:
                labels = np.asarray(train.columns["label"])
                by_label = None if weights is None else dict(enumerate(weights))
                return known, [LogisticRegression(class_weight=by_label).fit(features, labels)]
            models: list[Any] = []
            for number, present in enumerate(np.asarray(train.columns["labels"], dtype=bool).T):
                if present.all() or not present.any():
                    models.append(-_NEVER if present.all() else _NEVER)
                else:
                    by_label = None if weights is None else {True: weights[number]}
                    models.append(LogisticRegression(class_weight=by_label).fit(features, present))
        return known, models

    def _words(self, split: PreparedSplit) -> list[NDArray[Any]]:
        """The columns of each example: its tokens, those of a second text behind all of the first."""
        vocabulary, offsets = self._prepared.vocabulary, split.offsets.tolist()
        found = []
        for first, stop in pairwise(offsets):
            words = []
            for number in range(first, stop):
                ids = np.asarray(split.sequences[number], dtype=np.int64)
                is_end = ids == vocabulary.eos_id
                second = np.cumsum(is_end) > 0
                words.append((ids + second * len(vocabulary))[~is_end & (ids != vocabulary.bos_id)])
            found.append(np.concatenate(words))
        return found

    def _features(self, split: PreparedSplit, known: list[NDArray[Any]]) -> sparse.csr_matrix:
        """TF-IDF (N, V)."""
        words = known if split.name == "train" else self._words(split)
        return tf_idf(words, known=known, num_ids=2 * len(self._prepared.vocabulary))
