"""A text or a pair -> one of several labels. `--kind pair` is this kind with two texts.

Column: `label`, the number of the right label.

Shapes: N examples of a split, C labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from roberta_plugin.finetuning.custom.kinds.base import CustomKind, Outcome, ids_of, logits_of, rounded
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds import own_metrics as metrics
from roberta_plugin.kinds.averaging import mean_probabilities
from roberta_plugin.kinds.examples import Example, label_of
from roberta_plugin.kinds.labels import balanced_weights, found_labels, number_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.tables import Row


class Classification(CustomKind):
    """Cross-entropy over the labels."""

    name = "classification"

    @property
    def selection(self) -> str:
        """Accuracy; macro-F1 where the labels are weighted, for then the rare ones matter."""
        return "macro_f1" if self.settings["class_weights"] == "balanced" else "accuracy"

    def read_target(self, row: Row, choices: tuple[str, ...]) -> str:
        """See `CustomKind.read_target`: the label as text."""
        return label_of(row.value(self.label_column, option="--label-column"), self.label_column, row.where)

    def split_labels(self, example: Example) -> tuple[str, ...]:
        """See `CustomKind.split_labels`."""
        return (example.target,)

    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """See `CustomKind.discover`: labels, and their weights."""
        pairs = ((example.target, example) for example in table)
        labels = found_labels(pairs, self.settings.get("labels"), path=table[0].path)
        found: dict[str, Any] = {"labels": labels}
        if self.settings["class_weights"] == "balanced":
            found["weights"] = balanced_weights(labels, Counter(example.target for example in train))
        return found

    def columns(self, example: Example) -> dict[str, Any]:
        """See `CustomKind.columns`."""
        return {"label": number_of(example.target, self.labels, example)}

    def outcome(
        self,
        split: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        train: PreparedSplit,
        threshold: float | None = None,
    ) -> Outcome:
        """See `CustomKind.outcome`: the most probable label; probabilities of members are averaged."""
        logits, labels = logits_of(members), self.labels
        shape = logits[0].shape  # (N, C)
        offsets = np.arange(0, logits[0].size + 1, shape[1])
        flat = [each.astype(np.float32).reshape(-1) for each in logits]
        probabilities = mean_probabilities(flat, offsets).reshape(shape)
        predictions = probabilities.argmax(axis=1)  # (N, C) -> (N,)
        answers = split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, id_ in enumerate(ids_of(split)):
                best = int(predictions[index])
                entry = {"id": id_, "prediction": labels[best], "probability": rounded(probabilities[index, best])}
                if answers is not None:
                    entry["label"] = labels[int(answers[index])]
                shown = zip(labels, map(rounded, probabilities[index].tolist()), strict=True)
                yield {**entry, "probabilities": dict(shown)}

        if answers is None:
            return Outcome(entries=entries, num_examples=len(split))
        right = np.asarray(answers)
        ones = np.ones(len(right))
        counts = metrics.confusion(right, predictions, ones, num_classes=len(labels))
        most_frequent = np.full_like(predictions, np.bincount(train.columns["label"]).argmax())
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=lambda weights: metrics.of_classes(right, predictions, weights, num_classes=len(labels)),
            baseline=metrics.of_classes(right, most_frequent, ones, num_classes=len(labels)),
            tables={
                "classes": metrics.class_table(counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1), labels),
                "confusion": {"labels": labels, "counts": counts.astype(int).tolist()},
            },
        )
