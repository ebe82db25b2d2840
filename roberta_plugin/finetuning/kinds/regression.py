"""A text or a pair -> a number, on a scale of your own or of a task.

Column: `label`, the number as the table has it. Of tables of your own, the model learns (number - mean) / deviation,
with the mean and the standard deviation of the training set, so that the scale does not matter; both are settings, and
undone in predictions. Of STS-B, they are 0 and 5.

Example: {"text": "A plane takes off.", "text_pair": "An air plane is taking off."} -> {"score": 4.9}

Shapes: N examples of a split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.cells import number_in
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.base import SEQUENCE_CLASSIFICATION, HuggingFace, TextKind, logits_of
from roberta_plugin.finetuning.kinds.decisions import Decisions
from roberta_plugin.finetuning.kinds.outcome import Outcome, ids_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.tables import Row, short

_NUMBERS_DIFFER = 0.01  # standard deviation


class Regression(TextKind, TableKind):
    """Squared error of the standardized number."""

    name = "regression"
    description = "gives a number for a text or a pair of texts"
    hugging_face: ClassVar[HuggingFace | None] = HuggingFace(
        **SEQUENCE_CLASSIFICATION,
        problem_type="regression",
        arguments=', function_to_apply="none"',
        settings={"kind": "regression"},
    )

    def metrics(self) -> tuple[str, ...]:
        """See `Kind.metrics`."""
        return ("pearson_spearman", "pearson", "spearman", "mae", "rmse")

    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        """See `Kind.constant`."""
        (logits,), (mean, deviation) = logits_of([outputs]), self.scale
        number = (np.mean(train.columns["label"]) - mean) / deviation
        return RawOutputs(logits=np.full(logits.shape, number, dtype=np.float32))

    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        """See `Kind.only_answer`; numbers are on a scale of about 1."""
        (logits,) = logits_of([outputs])
        return "the same number" if len(logits) > 1 and logits.std() < _NUMBERS_DIFFER else None

    @property
    def selection(self) -> str:
        """The mean of Pearson's and Spearman's correlation."""
        return "pearson_spearman"

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and deviation of the numbers: the model learns (number - mean) / deviation."""
        return self.settings.get("mean", 0.0), self.settings.get("deviation", 1.0)

    def open(self) -> None:
        """See `Kind.open`."""
        super().open()
        self.check_one_output()

    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        """See `TextKind.decode`: the number, within the limits of an official task."""
        numbers = np.mean([each[:, 0] for each in logits_of(members)], axis=0)
        if self.official.limits is not None:
            numbers = numbers.clip(*self.official.limits)
        return [{"score": round(number, 6)} for number in numbers.tolist()]

    def read_target(self, row: Row, choices: tuple[str, ...]) -> float:
        """See `TableKind.read_target`: the number."""
        value = row.value(self.label_column, option="--label-column")
        number = number_in(value)
        if math.isnan(number):
            raise ValueError(
                f"{row.where}: the column {self.label_column!r} must hold a number, found {short(value)}. Correct the "
                "row, write it as 1234.5 or 1e-3, or give another --kind."
            )
        return number

    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """See `TableKind.discover`: mean and standard deviation."""
        numbers = np.array([example.target for example in train])
        if numbers.min() == numbers.max():
            raise ValueError(f"{table[0].path}: every row has the number {numbers[0]:g}, so there is nothing to learn.")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(numbers.mean()), float(numbers.std())
        if not math.isfinite(deviation) or deviation < np.finfo(np.float64).tiny:
            raise ValueError(
                f"{table[0].path}: the numbers, from {numbers.min():g} to {numbers.max():g}, are too large or too "
                "small to compute with. Write them in another unit."
            )
        return {"labels": [], "mean": mean, "deviation": deviation}

    def columns(self, example: Example) -> dict[str, Any]:
        """See `TableKind.columns`."""
        return {"label": float(example.target)}

    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """See `Kind.judged`: numbers on the scale of the table; those of an official task as its files have them."""
        mean, deviation = self.scale
        predictions: NDArray[np.float64] = np.mean([each[:, 0] for each in logits_of(members)], axis=0)
        predictions = predictions * deviation + mean
        if self.official.limits is not None:
            predictions = metrics.as_written(predictions, self.official.limits)
        answers = split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, id_ in enumerate(ids_of(split)):
                entry: dict[str, Any] = {"id": id_, "prediction": float(f"{predictions[index]:.6g}")}
                yield entry if answers is None else {**entry, "label": float(answers[index])}

        if answers is None:
            return Outcome(entries=entries, num_examples=len(split))
        right = np.asarray(answers, dtype=np.float64)
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=lambda weights: metrics.of_numbers(right, predictions, weights),
            losses=(predictions - right) ** 2,
        )
