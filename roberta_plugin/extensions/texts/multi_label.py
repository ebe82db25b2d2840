"""A text or a pair -> the labels whose probability reaches a threshold: any number of labels, also none.

Column: `labels`, 1 for each label that the example has and 0 for the other labels (C,).

Example: {"text": "A witty thriller."} -> {"labels": ["comedy", "thriller"], "probabilities": {"comedy": 0.8, ...}}

Shapes: N examples of a split, C labels, M thresholds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.finetuning.examples import (
    Example,
    given_weights,
    is_missing,
    label_of,
    number_of,
    order_labels,
    positive_weights,
)
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.base import (
    DEFAULT_THRESHOLD,
    SEQUENCE_CLASSIFICATION,
    HuggingFace,
    certain,
    logits_of,
    rounded,
)
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, Weights, ids_of
from roberta_plugin.finetuning.kinds.score_names import of_label, tuned, untuned
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.texts import TextKind
from roberta_plugin.finetuning.kinds.usage import Exported
from roberta_plugin.finetuning.label_names import OPTION, whole_number
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.records import flag_in, flags_in, values_of
from roberta_plugin.tables import Row, short

logger = logging.getLogger(__name__)

SEPARATOR = ","
_OTHER_SEPARATORS = ";|"


class MultiLabel(TextKind, TableKind):
    """Binary cross-entropy of each label."""

    name = "multi_label"
    description = "gives any number of labels to a text or a pair of texts"
    has_labels = numbers_labels = knows_no_label = is_compared_with_words = True
    hugging_face = HuggingFace(
        **SEQUENCE_CLASSIFICATION,
        problem_type="multi_label_classification",
        arguments=", top_k=None",
        settings={"kind": "multi_label"},
    )
    reads_logits = "A text may have several labels, by the sigmoid of each logit"
    decides_by = MappingProxyType({"threshold": ""})
    free_settings = ("label_separator", "positive_label")
    scoring = ("threshold",)
    also_logged = ("threshold",)

    @override
    def usage_of(self, model: Exported, call: str) -> tuple[str, str, list[str]]:
        limit = model.decides_by.get("threshold", DEFAULT_THRESHOLD)
        labels = f'[each["label"] for each in scores if each["score"] >= {limit!r}]'
        return "", ", top_k=None", [f"for scores in {call}:", f"    print({labels})"]

    @override
    def decision(self, model: Exported) -> dict[str, str]:
        rule = "A label is given if its probability reaches the threshold."
        return {f"the threshold {value:.6g}": rule for value in model.decides_by.values()}

    @override
    def metrics(self) -> tuple[str, ...]:
        return tuned("micro_f1"), tuned("macro_f1")

    @override
    def keeps_rows(self, labels: Sequence[str]) -> bool:
        return bool(labels)

    @override
    def label_metrics(self) -> dict[str, int]:
        return {tuned(of_label("f1", label)): number for number, label in enumerate(self.labels)}

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        """Outputs that give the most frequent label alone."""
        most_frequent = np.asarray(train.columns["labels"]).sum(axis=0).argmax()
        return RawOutputs(logits=2 * certain(logits_of([outputs])[0].shape, most_frequent) - 100)

    @property
    def selection(self) -> str:
        """Micro-F1 at the best threshold."""
        return tuned("micro_f1")

    @override
    def open(self) -> None:
        super().open()
        self.limit = self.number("threshold")

    @override
    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        """The labels whose probability reaches the threshold of the open model."""
        probabilities = label_probabilities(members)
        return list(_entries(probabilities, self.known_labels(probabilities.shape[1]), self.limit))

    @override
    def is_labelled(self, row: Row) -> bool:
        """True if the row has all columns of labels. An empty list says that none of the labels fits."""
        return all(column in row.values for column in self.settings["label_column"])

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> tuple[str, ...]:
        """The labels of the row."""
        columns = self.settings["label_column"]
        if len(columns) > 1:
            return tuple(column for column in columns if self._is_present(row, column))
        value = row.value(columns[0], option="--label-column")
        if is_missing(value):
            return ()
        parts = values_of(row, columns[0], separator=self.settings["label_separator"] or SEPARATOR)
        parts = [value] if parts is None else parts
        labels = [label_of(self.numbering.name(part, row.where), columns[0], row.where) for part in parts]
        if self.numbering.names:
            return tuple(dict.fromkeys(labels))
        names, flags = self.settings.get("labels") or (), flags_in(parts)
        if flags is not None and not set(labels) <= set(names):
            if len(flags) == len(names):
                return tuple(name for name, is_present in zip(names, flags, strict=True) if is_present)
            if names or len(set(labels)) < len(labels):  # else they may be the numbers of labels
                has = (
                    f"has {len(flags)} numbers, and --labels {len(names)} names" if names else "is a vector of 0 and 1"
                )
                raise ValueError(
                    f"{row.where}: {short(value)} in the column {columns[0]!r} {has}. Name the label of each of its "
                    f"numbers by --labels, in their order; if it lists the numbers of labels, by {OPTION}."
                )
        return tuple(dict.fromkeys(labels))

    @override
    def with_numbers(self, path: Path, rows: Sequence[Row], *, is_train: bool) -> Self:
        """This kind for the rows of a table. A table that mixes vectors of 0 and 1 with label numbers is refused."""
        made = super().with_numbers(path, rows, is_train=is_train)
        columns, names = self.settings["label_column"], self.settings.get("labels") or ()
        if made.numbering.names or not names or len(columns) != 1:
            return made
        lists = [(row, cell) for row in rows if (cell := self._list_in(row, columns[0]))]
        vector = next((row for row, cell in lists if len(cell) == len(names) and flags_in(cell)), None)
        numbers = [row for row, cell in lists if len(cell) != len(names) and None not in map(whole_number, cell)]
        if vector is not None and numbers and not {"0", "1"} <= set(names):
            raise ValueError(
                f"{numbers[0].where}: {short(numbers[0].values[columns[0]])} in the column {columns[0]!r} is not a "
                f"vector of {len(names)} numbers, but {short(vector.values[columns[0]])} in line {vector.line} may be "
                f"one. If the column lists the numbers of labels, give {OPTION} {' '.join(names)} instead of --labels. "
                "Otherwise, write a vector into every row."
            )
        if vector is not None and all(len({*map(str, cell)}) == len(cell) for _, cell in lists):
            logger.warning(
                f"{path}: lists such as {short(vector.values[columns[0]])} are read as vectors of 0 and 1 for the "
                f"labels {', '.join(names)}. If they list the numbers of labels, give {OPTION} instead of --labels."
            )
        return made

    def _list_in(self, row: Row, column: str) -> list[Any]:
        """The entries of a list; empty for a cell that is not a list."""
        try:
            return values_of(row, column, separator=self.settings["label_separator"] or SEPARATOR) or []
        except (ValueError, KeyError):
            return []  # `read_target` reports it

    @staticmethod
    def _is_present(row: Row, column: str) -> bool:
        value = row.value(column, option="--label-column")
        flag = flag_in(value)
        if flag is None:
            raise ValueError(
                f"{row.where}: the column {column!r} must hold 1 or 0, found {short(value)}. Correct it, "
                "or write -1 into all columns of a row that has no labels."
            )
        return flag

    @override
    def split_labels(self, example: Example) -> tuple[str, ...]:
        labels: tuple[str, ...] = example.target
        return labels

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """The labels, and the weights of their presence."""
        columns = self.settings["label_column"]
        if self.settings["label_separator"] is None and not self.settings.get("labels") and len(columns) == 1:
            _check_separator(table)
        given = self.settings.get("labels")
        listed = given or (columns if len(columns) > 1 else self.numbering.names or None)
        pairs = ((label, example) for example in table for label in example.target)
        source = "" if given else "--label-column" if len(columns) > 1 else self.numbering.source
        labels = order_labels(pairs, listed, path=table[0].path, source=source)
        if all(set(example.target) == set(table[0].target) for example in table):
            raise ValueError(
                f"{table[0].path}: every row has the labels {', '.join(sorted(table[0].target))}, so there is "
                "nothing to learn. If these are numbers that say which labels a row has, name the labels by --labels."
            )
        settings: dict[str, Any] = {"labels": labels}
        weights = self.settings["class_weights"]
        if weights == "balanced":
            occurrences = Counter(label for example in train for label in example.target)
            settings["weights"] = positive_weights(labels, occurrences, len(train))
        elif weights != "none":
            settings["weights"] = given_weights(labels, weights)
        return settings

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        present = np.zeros(len(self.labels), dtype=np.uint8)
        for label in example.target:
            present[number_of(label, self.labels, example)] = 1
        return {"labels": present}

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the labels whose probability reaches the threshold."""
        labels, probabilities = self.labels, label_probabilities(members)
        answers = split.columns.get("labels")
        right: Any = None if answers is None else np.asarray(answers, dtype=bool)
        threshold = decisions.find(
            "threshold", lambda: metrics.best_threshold(probabilities, right), is_labelled=right is not None
        )

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, answer) in enumerate(
                zip(ids_of(split), _entries(probabilities, labels, threshold), strict=True)
            ):
                entry = {"id": id_, "prediction": answer.pop("labels")}
                yield {**entry, **({} if right is None else {"label": _names(labels, right[index])}), **answer}

        if right is None:
            return Outcome(entries=entries, num_examples=len(split))
        predictions = probabilities >= threshold
        counts = metrics.label_counts(right, predictions, np.ones(len(right)))

        def measure(weights: Weights) -> dict[str, float]:
            f1s = 100 * metrics.f1_of(*metrics.label_counts(right, predictions, weights))
            values = metrics.measure_labels(right, predictions, weights)
            return values | dict(zip(map(untuned, self.label_metrics()), f1s.tolist(), strict=True))

        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=measure,
            tables={"classes": metrics.class_table(*counts, labels)},
            losses=np.logaddexp(0, np.where(right, -1, 1) * _log_odds(probabilities)).mean(axis=1),
        )


def _check_separator(table: Sequence[Example]) -> None:
    """Refuse labels if no row has two of them, and some seem to be divided by another separator than a comma."""
    if any(len(example.target) > 1 for example in table):
        return
    for example in table:
        for mark in _OTHER_SEPARATORS:
            if example.target and mark in example.target[0]:
                raise ValueError(
                    f"{example.where}: no row has several labels, and {example.target[0]!r} seems to hold some. Give "
                    f"--label-separator '{mark}', or --label-separator , if this is one label."
                )


def _log_odds(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    smallest = np.finfo(np.float64).tiny
    odds: NDArray[np.float64] = np.log(np.maximum(probabilities, smallest))
    return odds - np.log(np.maximum(1 - probabilities, smallest))


def label_probabilities(members: Sequence[RawOutputs]) -> NDArray[np.float64]:
    """The mean of the members' probabilities of each label (N, C)."""
    mean: NDArray[np.float64] = np.mean([1 / (1 + np.exp(-each)) for each in logits_of(members)], axis=0)
    return mean


def _entries(
    probabilities: NDArray[np.float64], labels: Sequence[str], threshold: float | None
) -> Iterator[dict[str, Any]]:
    """The labels of each example that reach the threshold, by default 0.5, and all probabilities."""
    limit = DEFAULT_THRESHOLD if threshold is None else threshold
    extra = {} if threshold is None else {"threshold": rounded(threshold)}
    for row in probabilities:
        shown = dict(zip(labels, map(rounded, row.tolist()), strict=True))
        yield {"labels": _names(labels, row >= limit), **extra, "probabilities": shown}


def _names(labels: Sequence[str], present: Any) -> list[str]:
    return [label for label, is_present in zip(labels, present.tolist(), strict=True) if is_present]
