"""GLUE's official TSV files -> rows, or an error that says where the file is wrong and what to do.

The files are not CSV: a quote is an ordinary character, only a newline ends a line, and a tab always separates columns.
Some files begin with a byte-order mark. CoLA's train and dev files have no header line, its test file has one.

Example: the line "0<TAB>No one came.<TAB>Someone came.<TAB>not_entailment" of RTE ->
an `Example` with the id "0", the texts ("No one came.", "Someone came.") and the label.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_plugin.kinds.examples import Example
from roberta_plugin.tables import where

if TYPE_CHECKING:
    from roberta_plugin.finetuning.glue.tasks import GlueFiles, SplitSource

logger = logging.getLogger(__name__)

_FEW_BROKEN, _BROKEN_SHARE = 3, 0.01  # more broken rows than both: it is another file
_ID_COLUMNS = ("index", "id")


class _BrokenRowError(ValueError):
    """A row that cannot be used in a file that is otherwise valid."""


def read_rows(files: GlueFiles, source: SplitSource, path: Path) -> list[Example]:
    """Read a file.

    Broken rows of QQP's train and dev files are left out, with a warning: the official files have about twenty, whose
    questions contain line ends or are empty.
    """
    lines = list(_lines_of(path))
    header = source.header or tuple(lines[0][1].split("\t") if lines else ())
    columns = _Columns(files, source, path, header)
    rows: list[Example] = []
    seen: dict[str, int] = {}
    num_broken = broken_line = 0
    for number, line in lines[0 if source.header else 1 :]:
        place = where(path, number)
        try:
            values = line.split("\t")
            if not columns.is_wanted(values):
                continue
            row = columns.row(values, line=number, index=len(rows))
        except _BrokenRowError:
            if not (files.leaves_out_broken_rows and source.is_labelled):
                raise
            num_broken, broken_line = num_broken + 1, number
            continue
        if row.id in seen:
            raise ValueError(
                f"{place}: the id {row.id!r} occurs in line {seen[row.id]} already. Ids must be unique; remove one of "
                "the two lines."
            )
        seen[row.id] = number
        rows.append(row)
    if num_broken > max(_FEW_BROKEN, _BROKEN_SHARE * len(rows)):
        raise ValueError(
            f"{path}: {num_broken:,} rows are broken, cut off or with an empty question, such as line {broken_line}, "
            f"and {len(rows):,} are not; the official file has about twenty broken ones. Fetch it again."
        )
    if not rows:
        only = "".join(f" with {name} {value}" for name, value in source.only.items())
        raise ValueError(f"{path} has no rows{only}: the file is empty, cut off or of other rows. Fetch it again.")
    if num_broken:
        logger.warning(f"{path}: {num_broken} broken rows are left out, {len(rows):,} rows are kept")
    return rows


def _lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line; blank lines at the end of the file do not count."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: the bytes are not UTF-8. Save the file as UTF-8.") from error
    lines = text.rstrip("\r\n").split("\n") if text.strip() else []
    for number, content in enumerate(lines, start=1):
        yield number, content.removesuffix("\r")


class _Columns:
    """The indices of a file's columns, and how to read a row."""

    def __init__(self, files: GlueFiles, source: SplitSource, path: Path, header: tuple[str, ...]) -> None:
        self.files, self.source, self.path, self.num_columns = files, source, path, len(header)
        label = (source.label or files.label,) if source.is_labelled else ()
        sentences = source.sentences or files.sentences
        missing = [name for name in (*sentences, *label, *source.only) if name not in header]
        if missing:
            raise ValueError(
                f"{path}, line 1: there is no column {', '.join(map(repr, missing))}; found "
                f"{', '.join(map(repr, header)) or 'nothing'}. {files.name} needs the official file "
                "with its header."
            )
        self.sentences = [header.index(name) for name in sentences]
        self.label = header.index(label[0]) if label else None
        self.only = [(header.index(name), value) for name, value in source.only.items()]
        self.id = next((header.index(name) for name in _ID_COLUMNS if name in header), None)

    def is_wanted(self, values: list[str]) -> bool:
        """Whether a line is of the split; a broken one is, to be told."""
        is_whole = len(values) == self.num_columns
        return not is_whole or all(values[column] == value for column, value in self.only)

    def row(self, values: list[str], *, line: int, index: int) -> Example:
        """The row of one line, the `index`-th of the file."""
        place = where(self.path, line)
        if len(values) != self.num_columns:
            raise _BrokenRowError(
                f"{place}: {len(values)} columns where there should be {self.num_columns}. Either the line is cut off, "
                "or a text holds a tab or a line end; correct or remove the line."
            )
        sentences = tuple(values[column].strip() for column in self.sentences)
        if not all(sentences) and not (self.files.leaves_out_broken_rows and not self.source.is_labelled):
            raise _BrokenRowError(f"{place}: a sentence is empty. Correct or remove the line.")
        row_id = str(index) if self.id is None else values[self.id]
        label = None if self.label is None else self._label(values[self.label].strip(), place)
        return Example(self.path, line, row_id, sentences, label)

    def _label(self, text: str, place: str) -> str | float:
        text = self.source.renamed_labels.get(text, text)
        if self.files.labels:
            if text in self.files.labels:
                return text
            raise ValueError(
                f"{place}: the label {text!r} is none of {', '.join(self.files.labels)}, the labels of "
                f"{self.files.name}. Correct or remove the line."
            )
        low, high = self.files.limits
        try:
            if low <= float(text) <= high:
                return float(text)
        except ValueError:
            pass
        raise ValueError(
            f"{place}: the {self.files.label} {text!r} is not a number from {low:g} to {high:g}. "
            "Correct or remove the line."
        )
