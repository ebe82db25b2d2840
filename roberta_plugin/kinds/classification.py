"""A text or a pair -> one of several labels. `--kind pair` is this kind with two texts.

Column: `label`, the number of the right label.

Example: {"text": "A fine film."} -> {"label": "1", "probability": 0.98, "probabilities": {"0": 0.02, "1": 0.98}}

Shapes: N examples of a split, C labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds import metrics
from roberta_plugin.kinds.averaging import class_probabilities
from roberta_plugin.kinds.base import SEQUENCE_CLASSIFICATION, HuggingFace, TextKind, certain, logits_of, rounded
from roberta_plugin.kinds.examples import Example, label_of
from roberta_plugin.kinds.labels import balanced_weights, found_labels, given_weights, number_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.tables import Outcome, TableKind, ids_of
from roberta_plugin.tables import Row


class Classification(TextKind, TableKind):
    """Cross-entropy over the labels."""

    name = "classification"
    description = "chooses a class for a text or a pair of texts"
    loss = "classification"
    has_labels = can_smooth = True
    hugging_face = HuggingFace(
        **SEQUENCE_CLASSIFICATION, problem_type="single_label_classification", settings={"kind": "classification"}
    )

    def metrics(self) -> tuple[str, ...]:
        """See `Kind.metrics`."""
        of_two = ("f1", "acc_and_f1", *metrics.OF_SCORES) if len(self.labels) == 2 else ()
        return ("accuracy", "macro_f1", "mcc", *of_two)

    def label_metrics(self) -> dict[str, int]:
        """See `Kind.label_metrics`."""
        return {f"f1_{label}": number for number, label in enumerate(self.labels)}

    def head_sizes(self) -> dict[str, int]:
        """See `Kind.head_sizes`."""
        return {"num_classes": len(self.labels)}

    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        """See `Kind.constant`."""
        label = np.bincount(np.asarray(train.columns["label"])).argmax()
        return RawOutputs(logits=certain(logits_of([outputs])[0].shape, label))

    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        """See `Kind.only_answer`."""
        (logits,) = logits_of([outputs])
        classes = np.unique(logits.argmax(axis=1))
        return f"the label {self.labels[classes[0]]}" if len(classes) == 1 and len(logits) > 1 else None

    @property
    def selection(self) -> str:
        """Accuracy; macro-F1 where the labels are weighted, for then the rare ones matter."""
        return "accuracy" if self.settings["class_weights"] == "none" else "macro_f1"

    def decide(self, members: Sequence[RawOutputs], split: PreparedSplit) -> NDArray[np.int64]:
        """See `Kind.decide`: the most probable label."""
        return np.asarray(class_probabilities(logits_of(members)).argmax(axis=1))

    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        """See `TextKind.decode`: the most probable label; probabilities of members are averaged."""
        probabilities = class_probabilities(logits_of(members))  # (N, C)
        labels = self.known_labels(probabilities.shape[1])
        answers = []
        for row in probabilities.tolist():
            best = max(range(len(row)), key=row.__getitem__)
            shown = dict(zip(labels, map(rounded, row), strict=True))
            answers.append({"label": labels[best], "probability": rounded(row[best]), "probabilities": shown})
        return answers

    def read_target(self, row: Row, choices: tuple[str, ...]) -> str:
        """See `TableKind.read_target`: the label as text."""
        return label_of(row.value(self.label_column, option="--label-column"), self.label_column, row.where)

    def split_labels(self, example: Example) -> tuple[str, ...]:
        """See `TableKind.split_labels`."""
        return (example.target,)

    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """See `TableKind.discover`: labels, and their weights."""
        pairs = ((example.target, example) for example in table)
        labels = found_labels(pairs, self.settings.get("labels"), path=table[0].path)
        found: dict[str, Any] = {"labels": labels}
        weights = self.settings["class_weights"]
        if weights == "balanced":
            found["weights"] = balanced_weights(labels, Counter(example.target for example in train))
        elif weights != "none":
            found["weights"] = given_weights(labels, weights)
        return found

    def columns(self, example: Example) -> dict[str, Any]:
        """See `TableKind.columns`."""
        return {"label": number_of(example.target, self.labels, example)}

    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], threshold: float | None) -> Outcome:
        """See `TableKind.judged`."""
        labels = self.labels
        answers = split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, found) in enumerate(zip(ids_of(split), self.decode(members), strict=True)):
                entry = {"id": id_, "prediction": found.pop("label"), "probability": found.pop("probability")}
                yield {**entry, **({} if answers is None else {"label": labels[int(answers[index])]}), **found}

        if answers is None:
            return Outcome(entries=entries, num_examples=len(split))
        right, predictions = np.asarray(answers), self.decide(members, split)
        counts = metrics.confusion(right, predictions, np.ones(len(right)), num_classes=len(labels))
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=lambda weights: metrics.of_classes(right, predictions, weights, num_classes=len(labels)),
            tables={
                "classes": metrics.class_table(counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1), labels),
                "confusion": {"labels": labels, "counts": counts.astype(int).tolist()},
            },
        )
