"""CSV, TSV and JSON Lines -> rows, each with the number of the line where it begins; any table -> cells of its text.

`read_cells` gives the column of the text as bytes: cells that end with the byte 0xff, which UTF-8 does not use. The
byte 0xfe is followed by the reason why a row has no text.

Example: the texts "a", "b" and null -> b"a\\xffb\\xff\\xfeit has no text (null)\\xff".
"""

from __future__ import annotations

import csv
import functools
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roberta_plugin.data.text_inputs_columnar import groups_of, read_batches, require_column
from roberta_plugin.data.text_inputs_files import Form, TextInput
from roberta_plugin.data.text_inputs_json import check_json_lines
from roberta_plugin.data.text_inputs_lines import BLOCK_BYTES, BadLineError, TextLines, each, lines_of_table
from roberta_plugin.data.text_inputs_quoting import Quotes
from roberta_plugin.json_files import parse_json
from roberta_plugin.moved import find_former_name
from roberta_plugin.settings import short as short

CELL_END, NO_TEXT = b"\xff", b"\xfe"
_NOT_UTF8 = b"\xfd"  # for these two in text that is not UTF-8
_LONGEST_FIELD = 1 << 24  # characters; more come from a quotation mark that is not closed
_ONE_OBJECT = "Write one object with named fields per line, or fetch the file again."
_SEP_LINE = re.compile(rb'"?sep=([^\r\n]{1,4}?)"?\r?\n', re.IGNORECASE)
_CSV_REMEDY = (
    "A text with a comma, a quotation mark or a line end needs quotation marks around it, and those inside are "
    'doubled (not \\"); other separators than a comma are named by --delimiter.'
)
_TSV_REMEDY = (
    "A text in TSV must hold no tab and no line end, if quotation marks do not enclose it: correct the line, or save "
    "the table as CSV."
)
_ROW_NAMES_REMEDY = "Name all columns; R's write.table does with row.names = FALSE."
_JOIN_REMEDY = "Remove the line; `awk 'NR == 1 || FNR > 1' part-*.csv > all.csv` joins tables without it."
logger = logging.getLogger(__name__)
NumberedRow = tuple[int, Mapping[str, Any]]


def rows_of_lines(
    lines: TextLines, form: Form, *, delimiter: str | None = None, column: str | None = None
) -> Iterator[NumberedRow | BadLineError]:
    """The rows of CSV, TSV or JSON Lines, and an error in the place of each line that cannot be used.

    Raises:
        ValueError: if the first line of CSV or TSV names no columns, or not `column`; if a file of JSON Lines is
            another form of JSON; or if what encloses the cells of TSV is not clear.
    """
    if form == "jsonl":
        check_json_lines(lines.first_bytes(), lines.name)
        return _json_lines(lines)
    return _read_separated(lines, _dialect(lines, form, delimiter), column)


def read_cells(
    source: TextInput,
    *,
    start: int = 0,
    end: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    on_data: Callable[[bytes], None] = lambda data: None,
) -> Iterator[bytes]:
    """The texts of a table's column, in blocks of about `block_bytes`; see the head of this module."""
    cells: list[bytes] = []
    size = 0
    for cell in (
        _columnar_cells(source, start, end, on_read) if source.is_columnar else _cells(source, on_read, on_data)
    ):
        cells.append(cell)
        size += len(cell) + 1
        if size >= block_bytes:
            yield CELL_END.join([*cells, b""])
            cells, size = [], 0
    if cells:
        yield CELL_END.join([*cells, b""])


def check_column(source: TextInput) -> None:
    """Refuse a table without its column, or whose column holds no text.

    Raises:
        ValueError: naming the columns that there are.
    """
    if source.is_columnar:
        groups_of(source)
    elif not source.is_stream:
        next(
            rows_of_lines(lines_of_table(source, on_read=lambda num_bytes: None), source.form, **_of_text(source)), None
        )


def _of_text(source: TextInput) -> dict[str, Any]:
    is_given = source.form == "csv" or source.delimiter != ","
    return {"delimiter": source.delimiter if is_given else None, "column": source.column}


def _cells(source: TextInput, on_read: Callable[[int], None], on_data: Callable[[bytes], None]) -> Iterator[bytes]:
    lines = lines_of_table(source, on_read=on_read, on_data=on_data)
    for row in rows_of_lines(lines, source.form, **_of_text(source)):
        if isinstance(row, BadLineError):
            yield NO_TEXT + f"at line {row.line}, {row.reason}".encode()
        else:
            yield row[1][source.column].encode()


def _columnar_cells(source: TextInput, start: int, end: int | None, on_read: Callable[[int], None]) -> Iterator[bytes]:
    import pyarrow

    no_text = NO_TEXT + b"it has no text (null)"
    for batch in read_batches(source, start, end, on_read=on_read, columns=[source.column]):
        column = batch.column(source.column)
        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        cells = column.cast(pyarrow.large_string()).cast(pyarrow.large_binary()).to_pylist()
        for cell in cells:
            if cell is None:
                yield no_text
            elif CELL_END in cell or NO_TEXT in cell:
                yield cell.replace(CELL_END, _NOT_UTF8).replace(NO_TEXT, _NOT_UTF8)
            else:
                yield cell


class _Dialect(NamedTuple):
    """How the cells of CSV or TSV are written."""

    delimiter: str
    is_quoted: bool
    is_unknown: bool = False
    """True if its rows have not been looked at, as in a pipe."""

    @property
    def remedy(self) -> str:
        """A remedy for a row that cannot be read."""
        return _CSV_REMEDY if self.is_quoted else _TSV_REMEDY

    def reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The cells of each row."""
        if self.is_quoted:
            return csv.reader(lines, delimiter=self.delimiter, strict=True)
        return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)


def separator(text: str) -> str:
    """The character that --delimiter names.

    Example: "\\\\t" and "\\t" -> "\\t".
    """
    delimiter = {"\\t": "\t"}.get(text, text)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f"--delimiter must be one character such as ';', or '\\t' for a tab, got {text!r}.")
    return delimiter


def _dialect(lines: TextLines, form: Form, wanted: str | None) -> _Dialect:
    """How a table is written: by --delimiter, the line `sep=;` with which Excel begins one, and what its rows show."""
    wanted = None if wanted is None else separator(wanted)
    if named := _SEP_LINE.match(lines.first_bytes()):
        next(lines)
        delimiter = separator(named[1].decode("utf-8", "replace"))
        if wanted not in (None, ",", delimiter):
            raise ValueError(
                f"{lines.name}, line 1: the cells are separated by {delimiter!r}, and --delimiter is {wanted!r}. Leave "
                "it out, or correct the line."
            )
        return _Dialect(delimiter, is_quoted=True)
    if form == "csv":
        return _Dialect(wanted or ",", is_quoted=True)
    if wanted == "\t":
        return _Dialect("\t", is_quoted=True)
    names = lines.first_bytes().lstrip(b"\r\n").split(b"\n", 1)[0]
    if wanted is not None and b"\t" not in names and wanted.encode() in names:
        return _Dialect(wanted, is_quoted=True)
    if lines.source is None or lines.source.is_hashed_when_read:
        return _Dialect("\t", is_quoted=False, is_unknown=True)
    return _Dialect("\t", is_quoted=_is_quoted(lines.source, lines.source.identity()))


@functools.lru_cache(maxsize=2**10)
def _is_quoted(source: TextInput, _identity: tuple[Any, ...]) -> bool:
    """True if the quotation marks of a TSV file enclose its cells."""
    quotes = Quotes(source.name)
    lines = each(lines_of_table(source, on_read=lambda num_bytes: None))
    for _ in quotes.note("\n" if isinstance(line, BadLineError) else line for line in lines):
        pass
    is_quoted = bool(quotes.are_enclosing())
    if is_quoted:
        logger.info(f"{source.name}: quotation marks enclose its cells, as in CSV")
    return is_quoted


def _read_separated(lines: TextLines, dialect: _Dialect, column: str | None) -> Iterator[NumberedRow | BadLineError]:
    """Rows of CSV or TSV."""
    header: list[str] | None = None
    line = lines.number + 1  # where the row begins
    empty: list[int] = []
    rows = _Cells(lines, dialect)
    for values in each(rows):
        if isinstance(values, BadLineError):
            if header is None:
                raise values
            yield values
        elif not values or (len(values) == 1 and values[0].isspace()):
            pass
        elif header is None:
            header = _header(lines.name, values, dialect.delimiter)
            if column is not None:
                require_column(lines.name, column, header)
        elif len(values) > 1 and not any(map(str.strip, values)):
            empty.append(line)
        elif fault := _fault_of(values, header, dialect, f"{lines.name}, line {line}"):
            yield BadLineError(lines.name, line, *fault)
        else:
            yield line, dict(zip(header, values, strict=True))
        line = rows.number + 1
    if empty:
        count = "1 empty row is" if len(empty) == 1 else f"{len(empty):,} empty rows are"
        logger.warning(f"{lines.name}: {count} left out, from line {empty[0]} on.")


def _fault_of(values: Sequence[str], header: Sequence[str], dialect: _Dialect, place: str) -> tuple[str, str] | None:
    """Why a row does not belong to the table, and the remedy.

    Raises:
        ValueError: if all rows after it have other columns.
    """
    cells, names = (
        [cell.removeprefix("\ufeff").strip().strip('"').casefold() for cell in each] for each in (values, header)
    )
    same = [cell == name for cell, name in zip(cells, names, strict=False) if name]
    shown = ", ".join(header)[:80]
    if len(names) > 1 and cells != names and sorted(cells) == sorted(names):
        raise ValueError(
            f"{place}: the names of the columns come again, in another order than in the first line ({shown}), as "
            "where tables were joined. Join tables with the same order of columns, each without its first line."
        )
    is_same = (
        [values[0].removeprefix("\ufeff")] == list(header) if len(names) == 1 else sum(same) > max(1, len(same) / 2)
    )
    if len(cells) == len(header) and is_same:
        return f"it repeats the names of the columns ({shown}), as where tables were joined", _JOIN_REMEDY
    if len(values) == len(header) + 1 and dialect.is_quoted and dialect.delimiter == "\t":
        return f"it has {len(values)} columns, and the first line names {len(header)} ({shown})", _ROW_NAMES_REMEDY
    if len(values) != len(header):
        return f"it has {len(values)} columns, and the first line names {len(header)} ({shown})", dialect.remedy
    return None


class _Cells:
    """The values of each row of CSV or TSV; a row that cannot be read is raised, and reading continues after it."""

    def __init__(self, lines: TextLines, dialect: _Dialect) -> None:
        csv.field_size_limit(_LONGEST_FIELD)
        self._lines, self._dialect = lines, dialect
        self._pipe = _RowsOfPipe(lines) if dialect.is_unknown else None
        self._reader = self._pipe or dialect.reader(lines)

    def __iter__(self) -> _Cells:
        return self

    def __next__(self) -> list[str]:
        line = self.number + 1
        try:
            return next(self._reader)
        except csv.Error as error:
            remedy = self._dialect.remedy
            raise BadLineError(self._lines.name, line, f"the row cannot be read ({error})", remedy) from None

    @property
    def number(self) -> int:
        """The number of the line that was read last."""
        return self._lines.number if self._pipe is None else self._pipe.number


class _RowsOfPipe:
    """The cells of each row of TSV that can be read only once; `number` is the line that was read last."""

    def __init__(self, lines: TextLines) -> None:
        self._name, self.number = lines.name, 0
        self._bad: deque[BadLineError] = deque()
        self._plain: deque[str] = deque()  # lines of an invalid row of several lines
        self._quotes = Quotes(lines.name)
        self._rows = self._quotes.note(self._good(lines))

    def __iter__(self) -> _RowsOfPipe:
        return self

    def __next__(self) -> list[str]:
        if not self._plain:
            self._plain.extend(next(self._rows))
        is_quoted = bool(self._quotes.are_enclosing())
        row = list(self._plain) if is_quoted else [self._plain[0]]
        for _ in row:
            self._plain.popleft()
        self.number += len(row)
        if self._bad and self._bad[0].line <= self.number:
            raise self._bad.popleft()
        return next(_Dialect("\t", is_quoted).reader(row), [])

    def _good(self, lines: TextLines) -> Iterator[str]:
        for line in each(lines):
            if isinstance(line, BadLineError):
                self._bad.append(line)
            yield "\n" if isinstance(line, BadLineError) else line


def _header(name: str, columns: list[str], delimiter: str) -> list[str]:
    counts = Counter(columns)
    twice = [column for column, count in counts.items() if column and count > 1]  # spreadsheets add nameless columns
    if twice:
        raise ValueError(f"{name}, line 1: the column {twice[0]!r} occurs twice. Columns need different names.")
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in columns[0]), None)
    if len(columns) == 1 and other:
        remedy = "name the file .tsv, or give --delimiter '\\t'" if other == "\t" else f"give --delimiter '{other}'"
        raise ValueError(
            f"{name}, line 1: found a single column, {columns[0]!r}: the separator seems to be {other!r}, so {remedy}."
        )
    return columns


def _json_lines(lines: TextLines) -> Iterator[NumberedRow | BadLineError]:
    for line in each(lines):
        if isinstance(line, BadLineError):
            yield line
        elif line.strip():
            try:
                content = parse_json(line)
                fault = "" if isinstance(content, dict) else f"expected a JSON object, found {short(content)}"
            except ValueError as error:
                fault = f"it is not valid JSON ({error})"
            yield BadLineError(lines.name, lines.number, fault, _ONE_OBJECT) if fault else (lines.number, content)


def __getattr__(name: str) -> Any:
    """Former names."""
    return find_former_name(__name__, name)
