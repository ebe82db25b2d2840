"""A text or a pair -> one of several labels that have an order.

Column: `label`, the number of the right label.

Example: {"text": "It was fine."} -> {"label": "good", "probability": 0.7, "probabilities": {"bad": 0.1, ...}}

Shapes: N examples of a split, K labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.finetuning.examples import Example, label_of, number_of, order_labels
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.base import HuggingFace, logits_of, rounded
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, Weights, ids_of
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.texts import TextKind
from roberta_plugin.finetuning.kinds.usage import Exported, python_block
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.tables import Row

CERTAIN = 100.0  # a logit


class Ordinal(TextKind, TableKind):
    """CORAL: binary cross-entropies of being above each label."""

    name = "ordinal"
    description = "chooses one of several labels that have an order, for a text or a pair of texts"
    head = "coral"
    has_labels = numbers_labels = True
    baseline_name = "the median label"
    hugging_face: ClassVar[HuggingFace | None] = HuggingFace(
        suffix="ForOrdinalRegression",
        names={"dense": "classifier.dense", "out_proj": "classifier.out_proj", "": "classifier"},
        pipeline="text-classification",
        arguments=None,  # a softmax of the logits, as pipelines take it, has no meaning
        settings={"kind": "ordinal"},
        code=Path(__file__).with_name("modeling_ordinal.py"),
        auto_class="AutoModelForSequenceClassification",
    )

    # Data.

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> str:
        value = self.numbering.name(row.value(self.label_column, option="--label-column"), row.where)
        return label_of(value, self.label_column, row.where)

    @override
    def split_labels(self, example: Example) -> tuple[str, ...]:
        return (example.target,)

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        listed = self.settings.get("labels") or self.numbering.names or None
        if listed is None and not all(example.target.lstrip("-").isdecimal() for example in table):
            raise ValueError(
                f"{table[0].path}: the order of the labels is not known. Give them from the lowest to the highest: "
                "--labels LOWEST ... HIGHEST."
            )
        return {"labels": order_labels(((each.target, each) for each in table), listed, path=table[0].path)}

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        return {"label": number_of(example.target, self.labels, example)}

    @override
    def usage(self, model: Exported) -> str:
        return python_block(f"""\
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER", trust_remote_code=True)
model = AutoModelForSequenceClassification.from_pretrained("FOLDER", trust_remote_code=True)
logits = model(**tokenizer("A text.", return_tensors="pt", {model.cut()})).logits
print(model.config.id2label[int((logits > 0).sum())])""")

    # Results.

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("qwk", "mae", "accuracy")

    @property
    @override
    def selection(self) -> str:
        return "qwk"

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs | None:
        (logits,) = logits_of([outputs])
        median = int(np.median(np.asarray(train.columns["label"])))
        certain = np.where(np.arange(logits.shape[1]) < median, CERTAIN, -CERTAIN)
        return RawOutputs(logits=np.tile(certain, (len(logits), 1)).astype(np.float32))

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        ranks = np.unique(predicted(logits_of([outputs])))
        return f"the label {self.labels[ranks[0]]}" if len(ranks) == 1 and len(split) > 1 else None

    @override
    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        return self._entries(logits_of(members))

    def _entries(self, members: Sequence[NDArray[np.float64]]) -> list[dict[str, Any]]:
        probabilities = label_probabilities(members)
        labels = self.known_labels(probabilities.shape[1])
        return [
            {
                "label": labels[rank],
                "probability": rounded(row[rank]),
                "probabilities": dict(zip(labels, map(rounded, row), strict=True)),
            }
            for rank, row in zip(predicted(members).tolist(), probabilities.tolist(), strict=True)
        ]

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        logits, answers, labels = logits_of(members), split.columns.get("label"), self.labels
        right = None if answers is None else np.asarray(answers)

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, answer) in enumerate(zip(ids_of(split), self._entries(logits), strict=True)):
                entry = {"id": id_, "prediction": answer.pop("label"), **answer}
                yield entry if right is None else {**entry, "label": labels[int(right[index])]}

        if right is None:
            return Outcome(entries=entries, num_examples=len(split))
        ranks = predicted(logits)

        def measure(weights: Weights) -> dict[str, float]:
            counts = metrics.confusion(right, ranks, weights, num_classes=len(labels))
            return {
                "qwk": 100 * quadratic_kappa(counts),
                "mae": float(np.average(np.abs(right - ranks), weights=weights)),
                "accuracy": 100 * float(counts.trace() / counts.sum()),
            }

        return Outcome(entries=entries, num_examples=len(split), measure=measure)


def above(members: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Probabilities of being above each label but the last (N, K - 1); the mean over the members of an ensemble."""
    return np.asarray(np.mean([1 / (1 + np.exp(-each)) for each in members], axis=0))


def predicted(members: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    """The number of the label of each example (N,): how many labels it is above, with a probability over 1/2."""
    return np.asarray((above(members) > 0.5).sum(axis=1))


def label_probabilities(members: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The probability of each label (N, K): the differences of neighboring ones of `above`, which fall with k."""
    edges = np.pad(above(members), ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
    return np.asarray(np.clip(edges[:, :-1] - edges[:, 1:], 0, 1))


def quadratic_kappa(counts: NDArray[np.float64]) -> float:
    """Cohen's kappa with squared distances as weights, of a confusion matrix (K, K); 0 where it is not defined."""
    size = len(counts)
    distance = np.subtract.outer(np.arange(size), np.arange(size)) ** 2
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    chance = float((distance * expected).sum())
    return 1 - float((distance * counts).sum()) / chance if chance else 0.0
