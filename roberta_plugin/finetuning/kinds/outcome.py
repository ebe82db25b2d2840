"""What the outputs of a model come to on a split: entries for the file of predictions, metrics, tables for the report.

Shapes: N examples of a split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.kinds.metrics import OF_SCORES, base_name, of_two_classes
from roberta_plugin.finetuning.prepared import PreparedSplit

Weights = NDArray[Any]
Measure = Callable[[Weights], dict[str, float]]
"""How often each example counts (N,) -> metrics in percent; all ones give the metrics themselves."""

OF_ALL_LABELS = ("macro_f1", "mcc", *OF_SCORES)  # metrics to which every label contributes, however rare it is


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the outputs of a model, or of an ensemble, come to on a split."""

    entries: Callable[[], Iterator[dict[str, Any]]]
    """What is written about each example, in order."""
    num_examples: int
    """N."""
    measure: Measure | None = None
    """The metrics; None if the right answers are not known."""
    baseline: Mapping[str, float] = field(default_factory=dict)
    """Metrics of always giving the same answer: the most frequent label of the training set, or a guess."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """For the report: `classes`, one row per label; `confusion`, counts by right and predicted label; `errors`."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The thresholds and temperatures that were applied (`kinds/decisions.py`)."""
    losses: NDArray[Any] | None = None
    """The loss of each example (N,), by the probabilities or numbers in the entries; None: it has none of its own."""
    not_measured: tuple[str, ...] = ()
    """Metrics that the split cannot tell."""

    def renamed(self, name_of: Callable[[str], str]) -> Outcome:
        """The same with other names of the metrics."""
        assert self.measure is not None
        measure = self.measure

        def named(values: Mapping[str, float]) -> dict[str, float]:
            return {name_of(name): value for name, value in values.items()}

        return replace(self, measure=lambda weights: named(measure(weights)), baseline=named(self.baseline))

    def without_metrics_of_all_labels(self) -> Outcome:
        """For a split that lacks a label: its macro-F1 and Matthews correlation would be those of the other labels."""
        if self.measure is None:
            return self
        measure = self.measure

        def measured(values: Mapping[str, float]) -> dict[str, float]:
            return {name: value for name, value in values.items() if not _is_of_all_labels(name)}

        return replace(
            self,
            measure=lambda weights: measured(measure(weights)),
            baseline=measured(self.baseline),
            not_measured=tuple(name for name in measure(np.ones(self.num_examples)) if _is_of_all_labels(name)),
        )


def _is_of_all_labels(name: str) -> bool:
    is_of_positive = base_name(name) != name.removeprefix("tuned_")
    return is_of_positive or base_name(name) in OF_ALL_LABELS


def of_two_labels(
    split: PreparedSplit, labels: Sequence[str], predictions: NDArray[np.int64], right: NDArray[Any] | None
) -> Outcome:
    """That of decisions for one of two labels (N,), which have no probabilities."""

    def entries() -> Iterator[dict[str, Any]]:
        for id_, label in zip(ids_of(split), predictions.tolist(), strict=True):
            yield {"id": id_, "prediction": labels[label]}

    measure = None if right is None else partial(of_two_classes, np.asarray(right), predictions)
    return Outcome(entries=entries, num_examples=len(predictions), measure=measure)


def ids_of(split: PreparedSplit) -> Iterator[Any]:
    """The ids of the examples of a split, in order."""
    return (record["id"] for record in split.records())
