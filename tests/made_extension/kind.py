"""A text or a pair of texts -> one of several labels, by the head of classes.

Shapes: N examples of a split, C labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.finetuning.examples import Example, number_of, order_labels
from roberta_plugin.finetuning.kinds.base import certain, logits_of, rounded
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, Weights, class_probabilities, ids_of
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.texts import TextKind
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss
from roberta_plugin.tables import Row


class Made(TextKind, TableKind):
    """Cross-entropy over the labels."""

    name = "made"
    description = "chooses a label for a text"
    has_labels = can_smooth = True
    scoring = ("made_limit", "made_draws", "made_ties")

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "made_error")

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> str:
        return str(row.value("label", option="--label-column"))

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        return {"labels": order_labels(((each.target, each) for each in table), None, path=table[0].path)}

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        return {"label": number_of(example.target, self.labels, example)}

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        label = np.bincount(np.asarray(train.columns["label"])).argmax()
        return RawOutputs(logits=certain(logits_of([outputs])[0].shape, label))

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        labels = np.unique(logits_of([outputs])[0].argmax(axis=1))
        return f"the label {self.labels[labels[0]]}" if len(labels) == 1 and len(split) > 1 else None

    @override
    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        probabilities = class_probabilities(logits_of(members))  # (N, C)
        labels = self.known_labels(probabilities.shape[1])
        return [
            {
                "label": labels[row.argmax()],
                "probability": rounded(row.max()),
                "probabilities": dict(zip(labels, map(rounded, row), strict=True)),
            }
            for row in probabilities
        ]

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        answers, column = self.decode(members), split.columns.get("label")
        right = None if column is None else [self.labels[number] for number in np.asarray(column).tolist()]

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, answer) in enumerate(zip(ids_of(split), answers, strict=True)):
                entry = {"id": id_, "prediction": answer["label"], "probability": answer["probability"]}
                yield entry if right is None else {**entry, "label": right[index]}

        if right is None:
            return Outcome(entries=entries, num_examples=len(split))
        is_right = [answer["label"] == label for answer, label in zip(answers, right, strict=True)]

        def measure(weights: Weights) -> Mapping[str, float]:
            share = 100 * float(np.average(is_right, weights=weights))
            return {"accuracy": share, "made_error": 100 - share}

        return Outcome(entries=entries, num_examples=len(split), measure=measure)


class MadeOther(Made):
    """The same by the first of the classes of each token, with a fairseq task of its own."""

    name = "made_other"
    description = "chooses a label for a text by its first token"
    head = "made_token"
    default_head_name = "made_head"
    task = "roberta_made"
    can_pack = False


class MadeTraining(KindTraining):
    """A label for a text."""

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (B, C)."""
        labels = sample["columns"]["label"].long()
        smoothing = criterion.smoothing
        return Loss(F.cross_entropy(outputs.float(), labels, reduction="sum", label_smoothing=smoothing), len(labels))


class MadeOtherTraining(MadeTraining):
    """The same, of the first token."""

    @property
    @override
    def head_sizes(self) -> dict[str, int]:
        return {**super().head_sizes, "num_layers": self.cfg.made_layers}

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """The loss of the logits (B, T, C) of the first token."""
        return super().loss(criterion, outputs[:, 0], sample)
