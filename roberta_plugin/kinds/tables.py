"""Kinds that tables of your own can be of: how rows are read, and how outputs are judged, in the order of the flow.

    settings_of    options                     -> what the prepared folder records of them
    settings_of_table   the training table     -> what its columns decide
    rows           a file                      -> its rows
    read           a row                       -> an example, or an error that names file and line
    discover       examples of the training    -> what is found in them: labels, weights, mean
    sequences      examples                    -> the model's inputs
    columns        an example                  -> the numbers that the loss reads
    write          all of these                -> the files of a split
    outcome        raw outputs for a split     -> predictions, metrics (`judged`), baseline; names at a threshold

Shapes: N examples of a split.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.kinds import OWN, kind_class
from roberta_plugin.kinds.base import Kind
from roberta_plugin.kinds.decisions import DEVELOPMENT, Decisions
from roberta_plugin.kinds.examples import Example, is_missing
from roberta_plugin.kinds.metrics import OF_SCORES, base_name
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.texts import TextLayout, sentence_inputs
from roberta_plugin.tables import Row, check_text, format_of, read_table

Options = Any
"""A `CustomOptions` of `finetuning/options.py`, whose room is above this one."""
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


class TableKind(Kind):
    """A kind of tables of your own."""

    scoring: ClassVar[tuple[str, ...]] = ()
    """Options of the scoring that it has."""

    @classmethod
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """Further settings of this kind, from a `CustomOptions` of `finetuning/options.py`."""
        return {}

    def settings_of_table(self, train: Path) -> dict[str, Any]:
        """Further settings that the columns of the training table decide."""
        return {}

    @property
    def selection(self) -> str:
        """The metric of fairseq's log that selects the checkpoint and the cell of the grid."""
        return "accuracy"

    @property
    def label_column(self) -> str:
        """The column of the label."""
        return str(self.settings["label_column"][0])

    def check_name(self, path: Path) -> None:
        """Check that the name of a file gives a format that this kind reads."""
        format_of(path)

    def rows(self, path: Path) -> Iterator[Row]:
        """The rows of a file."""
        return read_table(path, delimiter=self.settings["delimiter"])

    def is_labelled(self, row: Row) -> bool:
        """Whether a row says what is right; a test table may lack the column, or leave it empty."""
        columns = self.settings["label_column"]
        return all(column in row.values and not is_missing(row.values[column]) for column in columns)

    def read(self, row: Row, *, is_labelled: bool) -> Example:
        """The example of a row."""
        texts, choices = self.read_inputs(row)
        return Example(
            path=row.path,
            line=row.line,
            id=self._id(row),
            texts=texts,
            target=self.read_target(row, choices) if is_labelled else None,
            choices=choices,
        )

    def read_inputs(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The texts of a row, by the rules for what `roberta predict` reads, and its options, if it has some."""
        return self.read_question(row), ()

    def _id(self, row: Row) -> str:
        column = self.settings["id_column"]
        if column is None:
            return str(row.line)
        value = row.value(column, option="--id-column")
        return check_text(str(value), f"the column {column!r}", row.where, may_be_empty=True)

    def split_key(self, example: Example) -> Sequence[str]:
        """The texts that must not be on both sides of a cut: the whole input."""
        return example.texts

    def split_labels(self, example: Example) -> Iterable[str]:
        """The labels of which each side of a cut gets its share; none: the kind has none."""
        return ()

    @abstractmethod
    def read_target(self, row: Row, choices: tuple[str, ...]) -> Any:
        """What the label column of a row says."""

    @abstractmethod
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """Settings that are found in the data, `labels` among them; refuses data of which nothing can be learned."""

    @abstractmethod
    def columns(self, example: Example) -> dict[str, Any]:
        """The numbers that the loss reads: one, or an array, per column.

        Raises:
            ValueError: naming file and line, if the example has a label that the training table lacks.
        """

    def sequences(
        self, examples: Sequence[Example], encoder: Encoder, split: SplitWriter, *, max_length: int
    ) -> Iterator[list[NDArray[np.int32]]]:
        """The model's inputs (T,) of each example: here those of its text or pair, as `kinds/texts.py` describes them.

        The split counts which of them are cut.
        """
        layout = TextLayout.of(self.settings, max_length=max_length)
        return sentence_inputs([example.texts for example in examples], encoder, split, layout)

    def write(self, split: SplitWriter, examples: Sequence[Example], encoder: Encoder, *, max_length: int) -> None:
        """Write a split: the inputs and numbers of each example, and a record with its id."""
        sequences = self.sequences(examples, encoder, split, max_length=max_length)
        for example, inputs in zip(examples, sequences, strict=True):
            split.add(inputs, **({} if example.target is None else self.columns(example)))
            split.record({"id": example.id, "line": example.line})

    def check_scoring(self, options: Options, split: PreparedSplit) -> None:
        """Refuse options of the scoring that this kind does not have, or for which the development set is too small."""
        for name in options.given("score"):
            if name not in self.scoring:
                kinds = " and ".join(each for each in OWN if name in cast(type[TableKind], kind_class(each)).scoring)
                raise ValueError(f"--{name.replace('_', '-')} goes with {kinds}, and this is {self.name}.")

    @abstractmethod
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predictions and metrics, without the baseline; the members of an ensemble are averaged.

        Raises:
            ValueError: see `Decisions.find`.
        """

    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """See `Kind.validated`; a threshold is found on the split itself."""
        decisions = Decisions(DEVELOPMENT)
        outcome = self.judged(split, [outputs], decisions)
        if "threshold" in decisions.used:
            outcome = outcome.renamed(self.at_threshold)
        assert outcome.measure is not None, "a validation has right answers"
        tuned = {f"tuned_{name}": value for name, value in decisions.used.items()}
        return {**outcome.measure(np.ones(outcome.num_examples)), **tuned}

    def outcome(
        self,
        split: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        train: PreparedSplit,
        options: Options,
    ) -> Outcome:
        """Predictions and metrics beside those of the constant answer, which the training set gives."""
        decisions = Decisions(split.name, options.given("score"))
        found = self.judged(split, members, decisions)
        if found.measure is None:
            return found
        baseline = self.baseline(split, members[0], train, Decisions(split.name, decisions.used))
        found = replace(found, baseline=baseline, numbers=decisions.used)
        return found.renamed(self.at_threshold) if "threshold" in decisions.used else found

    def at_threshold(self, name: str) -> str:
        """The name of a metric whose labels a threshold has decided, as validations call it if they log it.

        It is another number than the same metric of the most probable labels, which chooses checkpoints.
        """
        return name if base_name(name) in OF_SCORES else f"tuned_{name}"

    def baseline(
        self, split: PreparedSplit, outputs: RawOutputs, train: PreparedSplit, decisions: Decisions
    ) -> dict[str, float]:
        """The metrics of the constant answer on a labelled split."""
        constant = self.constant(outputs, train)
        judged = None if constant is None else self.judged(split, [constant], decisions)
        if judged is None or judged.measure is None:
            return {}
        return judged.measure(np.ones(judged.num_examples))


def ids_of(split: PreparedSplit) -> Iterator[str]:
    """The ids of the examples of a split, in order."""
    return (str(record["id"]) for record in split.records())
