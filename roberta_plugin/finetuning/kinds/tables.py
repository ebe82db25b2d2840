"""Kinds for tables of your own: how rows are read and written, in the order of the flow.

    settings_of    options                     -> settings of the prepared folder
    settings_of_table   the training table     -> further settings, which its columns decide
    rows           a file                      -> its rows
    read           a row                       -> an example, or an error that names file and line
    discover       examples of the training    -> settings that are found in them: labels, weights, mean
    sequences      examples                    -> the model's inputs
    columns        an example                  -> the numbers that the loss reads
    write          examples                    -> the files of a split, by the functions above

Shapes: N examples of a split.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.examples import Example, is_missing
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.label_names import Numbering, numbering_of
from roberta_plugin.finetuning.layouts.texts import Encoder, TextLayout, sentence_inputs
from roberta_plugin.finetuning.prepared import SplitWriter
from roberta_plugin.tables import Row, check_text, format_of, read_table


class TableKind(Kind):
    """A kind for tables of your own."""

    numbers_labels: ClassVar[bool] = False
    """True if numbers in the column of the label may stand for names."""
    knows_no_label: ClassVar[bool] = False
    """True if -1 in that column may mean that there is no label."""
    numbering = Numbering()
    """The meaning of numbers in that column."""
    free_settings: ClassVar[tuple[str, ...]] = ("id_column", "delimiter", "decimal")
    cut_settings: ClassVar[tuple[str, ...]] = ("valid_share", "fold", "group_column")
    of_table: ClassVar[tuple[str, ...]] = ()
    """Settings that the columns of the training table decide unless an option does (`settings_of_table`)."""

    @classmethod
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """Further settings of this kind, from the options of tables of your own."""
        return {}

    def settings_of_table(self, train: Path) -> dict[str, Any]:
        """Further settings that the columns of the training table decide."""
        return {}

    def grid(self) -> dict[str, tuple[Any, ...]]:
        """Learning rates (lrs) and batch sizes (batches) of a search, if they are not the usual ones."""
        return {}

    @property
    def label_column(self) -> str:
        """The column of the label."""
        return str(self.settings["label_column"][0])

    def label_columns(self, row: Row) -> list[str]:
        """The columns of a row that have the right answer."""
        return list(self.settings["label_column"])

    @staticmethod
    def reads_alone(path: Path) -> bool:
        """True if the name of a file is one of a format that only this kind reads (`rows`)."""
        return False

    def check_name(self, path: Path) -> None:
        """Refuse a file whose name does not tell a format that this kind reads."""
        format_of(path)

    def rows(self, path: Path) -> Iterator[Row]:
        """The rows of a file."""
        return read_table(path, delimiter=self.settings["delimiter"])

    def with_numbers(self, path: Path, rows: Sequence[Row], *, is_train: bool) -> Self:
        """This kind with the `numbering` of a table: the meaning of the numbers in its column of the label."""
        columns = self.label_columns(rows[0])
        if len(columns) != 1 or not self.numbers_labels:
            return self
        (column,) = columns
        made = copy.copy(self)
        made.numbering = numbering_of(
            path,
            column,
            [(row.where, row.values[column]) for row in rows if column in row.values],
            given=self.settings.get("label_names"),
            listed=self.settings.get("labels"),
            before=None if is_train else self.numbering,
        )
        if made.numbering.names != self.numbering.names:
            made.numbering.log(path, column)
        return made

    def is_marked(self, row: Row) -> bool:
        """True if a row has -1 in place of a label."""
        cells = [row.values.get(column) for column in self.label_columns(row)]
        return self.knows_no_label and bool(cells) and all(map(self.numbering.is_none, cells))

    def is_labelled(self, row: Row) -> bool:
        """True if a row has the right answer; in a test table the column may be missing or empty."""
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
        """The texts of a row, read as `roberta predict` reads records, and its options, if it has any."""
        return self.read_question(row), ()

    def _id(self, row: Row) -> str:
        column = self.settings["id_column"]
        if column is None:
            return str(row.line)
        value = row.value(column, option="--id-column")
        if is_missing(value):
            raise ValueError(
                f"{row.where}: the id in the column {column!r} is empty. Fill it in, or leave --id-column out."
            )
        if isinstance(value, float) and value.is_integer():  # as pandas writes whole numbers if one is missing
            value = int(value)
        return check_text(str(value), f"the column {column!r}", row.where)

    def unified(self, splits: Mapping[str, list[Example]]) -> dict[str, list[Example]]:
        """The examples of all splits, with targets in the form that the other methods read."""
        return dict(splits)

    def split_key(self, example: Example) -> Sequence[str]:
        """The texts that must not be on both sides of a cut: the whole input."""
        return example.texts

    def split_labels(self, example: Example) -> Iterable[str]:
        """The labels that are spread evenly over both sides of a cut; none: the kind has no labels."""
        return ()

    def remarks_on_rows(self, train: Sequence[Example]) -> Iterator[str]:
        """Sentences on the training rows for the user."""
        return iter(())

    @abstractmethod
    def read_target(self, row: Row, choices: tuple[str, ...]) -> Any:
        """The content of the label column of a row."""

    @abstractmethod
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """Settings that are found in the data, `labels` among them; refuses data without anything to learn."""

    @abstractmethod
    def columns(self, example: Example) -> dict[str, Any]:
        """The numbers that the loss reads: one, or an array, per column.

        Raises:
            ValueError: naming file and line, if the example has a label that is not in the training table.
        """

    def sequences(
        self, examples: Sequence[Example], encoder: Encoder, split: SplitWriter, *, max_length: int
    ) -> Iterator[list[NDArray[np.int32]]]:
        """The model's inputs (T,) for the text or pair of each example, as `layouts/texts.py` describes them.

        The split counts the texts that are cut.
        """
        layout = TextLayout.from_settings(self.settings, max_length=max_length)
        return sentence_inputs([example.texts for example in examples], encoder, split, layout)

    def record_of(self, example: Example) -> dict[str, Any]:
        """The record of an example in the prepared folder: its id and, in tables of your own, its line."""
        return {"id": example.id, **({"line": example.line} if self.official.is_own else {}), **example.record}

    def write(
        self, split: SplitWriter, examples: Iterable[Example], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write a split; examples of the same question have the same number in the column `question`."""
        examples = list(examples)
        numbers: dict[Hashable, int] = {}
        sequences = self.sequences(examples, encoder, split, max_length=max_length)
        for example, inputs in zip(examples, sequences, strict=True):
            columns = {} if example.target is None else self.columns(example)
            if example.question is not None:
                columns["question"] = numbers.setdefault(example.question, len(numbers))
            split.add(inputs, **columns)
            split.record(self.record_of(example))
        return ()
