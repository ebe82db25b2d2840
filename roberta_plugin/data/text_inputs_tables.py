"""Tables -> rows: CSV, TSV, JSON Lines, Parquet and Arrow. Used by `text_inputs` (text by column) and by tables.py.

In Parquet and Arrow, a part [start, end) is the row groups (in Arrow the record batches) with these numbers. Memory
holds one row group of the columns that are read. A row has the number of the line where it begins, in Parquet and Arrow
its own number, from 1 on.

`read_cells` gives the column of the text as bytes: cells that end with the byte 0xff, which UTF-8 does not use. The
byte 0xfe is followed by the reason why a row has no text.

Example: the texts "a", "b" and null -> b"a\\xffb\\xff\\xfeit has no text (null)\\xff".
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from roberta_plugin.data.text_inputs_files import (
    BLOCK_BYTES,
    BOM,
    BadLineError,
    Form,
    TextInput,
    open_input,
    read_lines,
)
from roberta_plugin.data.text_inputs_json import check_json_lines
from roberta_plugin.data.text_inputs_quoting import Quotes
from roberta_plugin.data.text_inputs_remote import RemoteError
from roberta_plugin.extras import require
from roberta_plugin.json_files import parse_json
from roberta_plugin.settings import short as short
from roberta_plugin.spelling import meant

CELL_END, NO_TEXT = b"\xff", b"\xfe"
_NOT_UTF8 = b"\xfd"  # for these two in text that is not UTF-8
_CONTINUES = b"\xff\xff\xff\xff"  # before each message of an Arrow stream; before no bytes at its end
_LONGEST_FIELD = 1 << 24  # characters; more come from a quotation mark that is not closed
_ROWS_AT_ONCE = 4096  # of a row group
_LINE_BLOCK_BYTES = 1 << 16  # a bar shows how much was read
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
T = TypeVar("T")


def lines_of_table(
    source: TextInput, *, on_read: Callable[[int], None], on_data: Callable[[bytes], None] = lambda data: None
) -> TextLines:
    """The lines of a text, with their ends."""
    blocks = read_lines(source, block_bytes=_LINE_BLOCK_BYTES, on_read=on_read, on_data=on_data, is_live=True)
    return TextLines(source.name, blocks, source)


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


def read_rows(source: TextInput, *, on_read: Callable[[int], None]) -> Iterator[Mapping[str, Any]]:
    """The rows of Parquet or Arrow, with all columns."""
    for batch in _batches(source, on_read=on_read):
        yield from batch.to_pylist()


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


class Group(NamedTuple):
    """A row group of Parquet, or a record batch of Arrow: its rows, and the bytes of the text, not compressed."""

    num_rows: int
    num_bytes: int


@functools.lru_cache(maxsize=2**14)
def groups_of(source: TextInput) -> tuple[Group, ...]:
    """The row groups of Parquet or Arrow; an Arrow file that is read by URL counts as one, of unknown rows.

    Raises:
        ValueError: see `check_column`, or if the file cannot be read.
    """
    with _open_file(source) as file:
        if source.form == "parquet":
            _check_type(source, file.schema_arrow)
            names = [file.schema.column(index).path for index in range(len(file.schema))]
            index = names.index(source.column)
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            return tuple(Group(group.num_rows, group.column(index).total_uncompressed_size) for group in groups)
        _check_type(source, file.schema)
        if source.is_remote:
            return (Group(0, source.size),)
        columns = [_valid(batch.column(source.column)) for batch in _record_batches(file, 0, None)]
        return tuple(Group(len(column), column.nbytes) for column in columns)


def _valid(column: Any) -> Any:
    """The column, if the ends of its data are where it says: that alone is cheap, of a file of any size."""
    column.validate()
    return column


def schema_metadata(source: TextInput) -> Mapping[bytes, bytes]:
    """Metadata that other programs have written into the schema of Parquet or Arrow."""
    with _open_file(source) as file:
        schema = file.schema_arrow if source.form == "parquet" else file.schema
        return dict(schema.metadata or {})


def num_rows_before(source: TextInput, start: int) -> int:
    """Rows before a row group."""
    return sum(group.num_rows for group in groups_of(source)[:start])


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
    for batch in _batches(source, start, end, on_read=on_read, columns=[source.column]):
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


def _checked(batch: Any, columns: list[str] | None) -> Any:
    """The batch, if its offsets lie within its data; a column of text may hold any bytes.

    Raises:
        pyarrow.ArrowInvalid: if they do not.
    """
    import pyarrow

    if columns is None:
        batch.validate(full=True)
    kinds = {pyarrow.string(): pyarrow.binary(), pyarrow.large_string(): pyarrow.large_binary()}
    for column in map(batch.column, columns or ()):
        (column.view(kinds[column.type]) if column.type in kinds else column).validate(full=True)
    return batch


def _check_type(source: TextInput, schema: Any) -> None:
    import pyarrow

    require_column(source.name, source.column, schema.names)
    if schema.names.count(source.column) > 1:
        raise ValueError(f"{source.name}: the column {source.column!r} occurs twice. Columns need different names.")
    kind = schema.field(source.column).type
    plain = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if not (pyarrow.types.is_string(plain) or pyarrow.types.is_large_string(plain) or str(plain) == "string_view"):
        raise ValueError(
            f"{source.name}: the column {source.column!r} holds {kind}, not text. Name a column of text by "
            f"--text-column; there are {', '.join(f'{field.name!r} ({field.type})' for field in schema)[:300]}."
        )


def require_column(name: str, column: str, columns: Sequence[str]) -> None:
    """Refuse a table without a column."""
    if column not in columns:
        listed = ", ".join(map(repr, columns)) or "none"
        other = meant(column, columns)
        question = "" if other is None else f"Is {other!a} meant, which differs only in spelling? "
        raise ValueError(
            f"{name}: there is no column {column!r}; there are {listed}. {question}Name one of them by --text-column."
        )


@contextmanager
def _open_file(source: TextInput) -> Iterator[Any]:
    """A Parquet file, or the reader of an Arrow file or stream."""
    what = "Parquet" if source.form == "parquet" else "Arrow"
    require("pyarrow", extra="parquet", purpose=f"{source.name}: reading {what}")
    import pyarrow
    from pyarrow import parquet

    try:
        with open_input(source.path, is_sequential=False) as file:
            place = file if source.is_remote else source.path  # of which pyarrow reads faster
            if source.form == "parquet":
                with parquet.ParquetFile(place) as table:
                    yield table
                return
            head, _, end = file.read(6), file.seek(-8, io.SEEK_END), file.read(8)
            file.seek(0)
            if head == b"ARROW1":
                yield pyarrow.ipc.open_file(place if source.is_remote else pyarrow.memory_map(place))
            elif head.startswith(_CONTINUES) and end != _CONTINUES + bytes(4):
                raise pyarrow.ArrowInvalid("its end is missing")  # which pyarrow would not notice
            else:
                yield pyarrow.ipc.open_stream(place if source.is_remote else pyarrow.memory_map(place))
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, RemoteError) or (getattr(error, "errno", None) is not None and error.filename):
            raise
        raise ValueError(
            f"{source.name} cannot be read as {what} ({' '.join(str(error).split())[:200]}): it is cut off, damaged "
            "or in another format. Copy or download it again."
        ) from error


def _batches(
    source: TextInput,
    start: int = 0,
    end: int | None = None,
    *,
    on_read: Callable[[int], None],
    columns: list[str] | None = None,
) -> Iterator[Any]:
    """Batches of rows of the row groups [start, end)."""
    size = source.size
    with _open_file(source) as file:
        if source.form == "parquet":
            groups = [*range(file.num_row_groups)][start:end]
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns, use_threads=False):
                on_read(size * len(batch) // file.metadata.num_rows)
                yield _checked(batch, columns)
            return
        total = 0 if columns is None or source.is_remote else sum(group.num_rows for group in groups_of(source))
        for batch in _record_batches(file, start, end):
            for first in range(0, len(batch), _ROWS_AT_ONCE):
                part = batch.slice(first, _ROWS_AT_ONCE)
                on_read(size * len(part) // total if total else 0)
                yield _checked(part, columns)
        if not total:
            on_read(size)


def _record_batches(file: Any, start: int, end: int | None) -> Iterator[Any]:
    if not hasattr(file, "num_record_batches"):
        return itertools.islice(file, start, end)
    return map(file.get_batch, range(start, file.num_record_batches if end is None else end))


class TextLines:
    """The lines of a text with their ends. A line that is not text is raised, and reading continues after it."""

    def __init__(self, name: str, blocks: Iterator[bytes], source: TextInput | None = None) -> None:
        self.name, self.number = name, 0  # of the line that was read last
        self.source = source  # None: standard input
        self._blocks = blocks
        self._block: bytes | None = None  # looked at, not yet read
        self._lines: Iterator[str | bytes] = iter(())
        self._is_at_start = True

    def __iter__(self) -> TextLines:
        """Itself."""
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            BadLineError: if it is not text in UTF-8.
        """
        while (line := next(self._lines, None)) is None:
            block = self.first_bytes()
            if not block:
                raise StopIteration
            self._block = None
            try:
                text = block.decode("utf-8")
            except UnicodeDecodeError:
                text = "\0"
            self._lines = iter(block.splitlines(keepends=True)) if "\0" in text else io.StringIO(text, newline="")
        self.number += 1
        return line if isinstance(line, str) else self._decode(line)

    def first_bytes(self) -> bytes:
        """The next block of bytes, which stays to be read; empty at the end."""
        if self._block is None:
            self._block = next(self._blocks, b"")
            if self._is_at_start:
                self._block, self._is_at_start = self._block.removeprefix(BOM), False
        return self._block

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            reason = "it holds byte 0x00, so the file is a binary one, or UTF-16"
            raise BadLineError(self.name, self.number, reason, "`iconv -f UTF-16LE -t UTF-8` converts the latter.")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte 0x{line[error.start]:02x} is not UTF-8"
            remedy = "Save the file as UTF-8, for instance by `iconv -f latin1 -t utf-8`, with its encoding for latin1."
            raise BadLineError(self.name, self.number, reason, remedy) from None


def each(items: Iterator[T]) -> Iterator[T | BadLineError]:
    """The items of an iterator that continues after errors, and the errors."""
    while True:
        try:
            yield next(items)
        except StopIteration:
            return
        except BadLineError as error:
            yield error


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
