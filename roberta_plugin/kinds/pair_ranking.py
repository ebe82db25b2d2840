"""The pairs of a question -> which of them are right: each pair has a logit, and the best one of a question wins.

"None of them" takes part with the logit 0. This fixes the level of the logits, so that the only pair of a question can
be judged too, by the sign of its logit. A new pair is predicted as a number (`regression`).

Columns: `question`, the number of the question; `answer`, 0 if the pair is right, or which sequence is (in training).

Example: the pairs of a question have the logits 1.2 and 0.3 -> the first sentence is the answer (`decide`: [1, 0]).

Shapes: N pairs of a split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.averaging import class_probabilities
from roberta_plugin.kinds.base import logits_of
from roberta_plugin.kinds.metrics import of_two_classes
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.regression import Regression


class PairRanking(Regression):
    """Cross-entropy over the pairs of a question and "none of them"."""

    name = "pair_ranking"
    hugging_face = None  # to others, its head is that of a regression

    def metrics(self) -> tuple[str, ...]:
        """See `Kind.metrics`."""
        return ("accuracy", "macro_f1", "mcc", "f1", "acc_and_f1")

    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        """See `Kind.constant`: of equal scores the first one counts."""
        return RawOutputs(logits=np.zeros(logits_of([outputs])[0].shape, dtype=np.float32))

    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> None:
        """See `Kind.only_answer`: scores are compared with each other."""

    def decide(self, members: Sequence[RawOutputs], split: PreparedSplit) -> NDArray[np.int64]:
        """See `Kind.decide`: 1 for the pairs that are right, 0 for the others."""
        beside_none = [np.concatenate([each, np.zeros_like(each)], axis=1) for each in logits_of(members)]
        return decide(class_probabilities(beside_none)[:, 0] - 0.5, split.columns["question"])

    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """See `Kind.validated`."""
        return of_two_classes(np.asarray(split.columns["answer"] == 0), self.decide([outputs], split))


def decide(logits: NDArray[np.floating], questions: NDArray[np.integer]) -> NDArray[np.int64]:
    """Logits (N,) of pairs and the numbers of their questions (N,) -> 1 if the sentence is the answer, else 0 (N,).

    The best of several sentences of a question is the answer; ties go to the first. A single sentence is the answer if
    its logit is above 0.
    """
    order = np.lexsort((-logits, questions))  # stable: question by question, the best first
    is_best = np.ones(len(order), dtype=bool)
    is_best[1:] = questions[order[1:]] != questions[order[:-1]]
    predictions = np.empty(len(order), dtype=np.int64)
    predictions[order] = is_best
    _, inverse, counts = np.unique(questions, return_inverse=True, return_counts=True)
    is_alone = counts[inverse] == 1
    predictions[is_alone] = logits[is_alone] > 0
    return predictions
