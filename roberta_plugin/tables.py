"""Tables -> rows, one at a time: CSV, TSV, JSON Lines, Parquet or text, also compressed (.gz, .zst, .xz, .bz2).

The one reader of tables, for training, prediction and benchmarks. The name of the file gives the format:

    csv       the first line names the columns; quotation marks as in RFC 4180: around fields that hold a comma, a
              quotation mark or a line end, and doubled within them
    tsv       the first line names the columns; a quotation mark is an ordinary character
    jsonl     a line is a JSON object
    parquet   a row is an object
    text      a line is {"text": line}; of files with any other name, and for prediction only

Text is UTF-8; a byte order mark is ignored. Lines end with LF, CRLF or CR. Empty lines do not count, except in text. A
row is named by the line where it begins, in Parquet by its number.

Example: 'text,label\\n"Good, really.",pos\\n' -> Row(line=2, values={"text": "Good, really.", "label": "pos"}).
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from roberta_plugin.data.text_inputs import LONGEST_LINE, read_blocks
from roberta_plugin.data.text_inputs import BadLineError as BadLineError
from roberta_plugin.data.text_inputs_files import COMPRESSIONS, find_inputs
from roberta_plugin.extras import require
from roberta_plugin.json_files import parse_json

Format = Literal["csv", "tsv", "jsonl", "parquet", "text"]
ENDINGS: Mapping[str, Format] = {
    **{".csv": "csv", ".tsv": "tsv"},
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_BLOCK_BYTES = 1 << 16  # a bar shows how much was read
_LONGEST_FIELD = 1 << 24  # characters; more come from a quotation mark that is not closed
_ROWS_AT_ONCE = 4096  # of a Parquet file
_BOM = b"\xef\xbb\xbf"
_ONE_OBJECT = "Write one object with named fields per line, or fetch the file again."
_CSV_REMEDY = (
    "A text with a comma, a quotation mark or a line end needs quotation marks around it, and those inside are "
    "doubled; other separators than a comma are named by --delimiter."
)
_TSV_REMEDY = "A text in TSV must hold no tab and no line end: correct the line, or save the table as CSV."
IN_MEMORY = Path("the record")
STANDARD_INPUT = Path("standard input")
T = TypeVar("T")


class Row(NamedTuple):
    """A row of a table, or an object within one; its methods check its values, and their errors begin with `where`."""

    path: Path
    """`IN_MEMORY` if it was in no file."""
    line: int
    """Where it begins, counted from 1; in Parquet the number of the row."""
    values: Mapping[str, Any]
    inside: str = ""
    """What leads to an object within a row, such as ", questions 2"."""

    @property
    def where(self) -> str:
        """For messages."""
        return (str(self.path) if self.path is IN_MEMORY else where(self.path, self.line)) + self.inside

    def value(self, name: str, *, option: str = "") -> Any:
        """The value of a column or field, which `option` may name."""
        if name not in self.values:
            found = ", ".join(map(repr, self.values)) or "none"
            remedy = f"Name one of them by {option}." if option else "Add it."
            raise ValueError(f"{self.where}: there is no column {name!r}; there are {found}. {remedy}")
        return self.values[name]

    def text(self, name: str, *, option: str = "", may_be_empty: bool = False) -> str:
        """A text as it stands in the file."""
        return check_text(
            self.value(name, option=option), f"the column {name!r}", self.where, may_be_empty=may_be_empty
        )

    def number(self, name: str) -> int:
        """A whole number from 0 on."""
        value = self.value(name)
        if type(value) is not int or value < 0:
            raise ValueError(f"{self.where}: {name} must be a whole number from 0 on, found {short(value)}.")
        return value

    def label(self, name: str, values: Sequence[Any]) -> int:
        """The index of the value among `values`, compared with its type: 1 is not true."""
        value = self.value(name)
        for index, known in enumerate(values):
            if type(value) is type(known) and value == known:
                return index
        known_values = ", ".join(json.dumps(known) for known in values)
        raise ValueError(f"{self.where}: {name} is {short(value)}, and must be one of {known_values}. Correct it.")

    def object_of(self, name: str) -> Row:
        """An object within this one."""
        return self._within(self.value(name), f", {name}")

    def objects_of(self, name: str) -> list[Row]:
        """A list of objects within this one."""
        values = check_list(self.value(name), name, self.where)
        if not values:
            raise ValueError(f"{self.where}: {name} is empty. Fill it in, or leave the entry out.")
        return [self._within(value, f", {name} {number}") for number, value in enumerate(values, start=1)]

    def _within(self, value: Any, place: str) -> Row:
        inside = self.inside + place
        if not isinstance(value, dict):
            found = self._replace(inside=inside).where
            raise ValueError(f"{found}: expected a JSON object with named fields, found {short(value)}.")
        return Row(self.path, self.line, value, inside)


def where(path: Path, line: int) -> str:
    """A row for messages, such as `my.csv, line 7`."""
    return f"{path}, {'row' if named_format(path) == 'parquet' else 'line'} {line}"


def named_format(path: Path) -> Format | None:
    """The format that the name of a table gives, also of a compressed one; None if it gives none."""
    return ENDINGS.get(Path(without_compression(path)).suffix)


def without_compression(path: Path) -> str:
    """The name of a file in small letters, without the ending of its compression."""
    name = path.name.lower()
    return name.removesuffix(next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), ""))


def format_of(path: Path) -> Format:
    """The format that the name of a table gives."""
    found = named_format(path)
    if found is None:
        raise ValueError(
            f"{path}: the name does not say the format. Let it end in {', '.join(ENDINGS)}; all but Parquet may be "
            f"compressed ({', '.join(COMPRESSIONS)})."
        )
    if found == "parquet" and path.suffix.lower() in COMPRESSIONS:
        raise ValueError(f"{path}: Parquet is compressed within. Unpack the file.")
    return found


def read_table(path: Path, *, delimiter: str | None = None) -> Iterator[Row]:
    """The rows of a table; the first bad line is an error."""
    for row in scan_table(path, format=format_of(path), delimiter=delimiter):
        if isinstance(row, BadLineError):
            raise row
        yield row


def scan_table(
    path: Path | None,
    *,
    format: Format | None,
    delimiter: str | None = None,
    on_read: Callable[[int], None] = lambda num_bytes: None,
) -> Iterator[Row | BadLineError]:
    """The rows of a table, and an error in the place of each line that cannot be used.

    Without a path, it is standard input; without a format, JSON Lines if the first line begins with {, else text.
    `on_read` gets the number of bytes that were read from the disk.

    Raises:
        ValueError: naming the file and the remedy, if nothing can be read: the header is faulty, the compression is
            damaged, a line has no end, or pyarrow is missing.
    """
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"The table {path} does not exist: check the path.")
    if format == "parquet":
        if path is None:
            raise ValueError("Standard input cannot be Parquet, whose rows are found from its end: name a file.")
        yield from _parquet(path, on_read)
        return
    lines = text_lines(path, on_read=on_read)
    path = path or STANDARD_INPUT
    if format is None:
        format = "jsonl" if lines.first_bytes().lstrip().startswith(b"{") else "text"
    if format == "text":
        for line in _each(lines):
            yield Row(path, lines.number, {"text": line.rstrip("\r\n")}) if isinstance(line, str) else line
    elif format == "jsonl":
        yield from _json_lines(path, lines)
    elif format == "tsv":
        yield from _separated(path, lines, "\t", csv.QUOTE_NONE)
    else:
        yield from _separated(path, lines, delimiter or ",", csv.QUOTE_MINIMAL)


class TextLines:
    """The lines of a text with their ends. A line that is not text is raised, and reading continues after it."""

    def __init__(self, name: str, blocks: Iterator[bytes]) -> None:
        self.name, self.number = name, 0  # of the line that was read last
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
        return line if isinstance(line, str) else self._decoded(line)

    def first_bytes(self) -> bytes:
        """The next block of bytes, which stays to be read; empty at the end."""
        if self._block is None:
            self._block = next(self._blocks, b"")
            if self._is_at_start:
                self._block, self._is_at_start = self._block.removeprefix(_BOM), False
        return self._block

    def _decoded(self, line: bytes) -> str:
        if b"\0" in line:
            reason = "it holds byte 0x00, so the file is a binary one, or UTF-16"
            raise BadLineError(self.name, self.number, reason, "`iconv -f UTF-16LE -t UTF-8` converts the latter.")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte 0x{line[error.start]:02x} is not UTF-8"
            remedy = "Save the file as UTF-8, for instance by `iconv -f latin1 -t utf-8`, with its encoding for latin1."
            raise BadLineError(self.name, self.number, reason, remedy) from None


def text_lines(path: Path | None, *, on_read: Callable[[int], None] = lambda num_bytes: None) -> TextLines:
    """The lines of a file, plain or compressed, or of standard input."""
    if path is None:
        return TextLines(str(STANDARD_INPUT), _blocks_of_standard_input())
    (source,) = find_inputs([path], text_format="text")
    return TextLines(str(path), read_blocks(source, block_bytes=_BLOCK_BYTES, on_read=on_read))


def _blocks_of_standard_input() -> Iterator[bytes]:
    """Line by line, so that none waits for the next one."""
    while line := sys.stdin.buffer.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise ValueError(f"Standard input: a line has more than {LONGEST_LINE >> 20} MiB. Split it into lines.")
        yield line


def _each(items: Iterator[T]) -> Iterator[T | BadLineError]:
    """The items of an iterator that continues after errors, and the errors."""
    while True:
        try:
            yield next(items)
        except StopIteration:
            return
        except BadLineError as error:
            yield error


def _separated(path: Path, lines: TextLines, delimiter: str, quoting: Literal[0, 3]) -> Iterator[Row | BadLineError]:
    """Rows of CSV or TSV."""
    if len(delimiter) != 1:
        raise ValueError(f"--delimiter must be one character, got {delimiter!r}.")
    remedy = _TSV_REMEDY if quoting == csv.QUOTE_NONE else _CSV_REMEDY
    header: list[str] | None = None
    line = 1  # where the row begins
    for values in _each(_Cells(lines, delimiter, quoting)):
        if isinstance(values, BadLineError):
            if header is None:
                raise values
            yield values
        elif not values or (len(values) == 1 and values[0].isspace()):
            pass
        elif header is None:
            header = _header(lines.name, values, delimiter)
        elif len(values) == len(header):
            yield Row(path, line, dict(zip(header, values, strict=True)))
        else:
            columns = f"it has {len(values)} columns, and the first line names {len(header)}"
            yield BadLineError(lines.name, line, f"{columns} ({', '.join(header)[:80]})", remedy)
        line = lines.number + 1


class _Cells:
    """The values of each row of CSV or TSV; a row that cannot be read is raised, and reading continues after it."""

    def __init__(self, lines: TextLines, delimiter: str, quoting: Literal[0, 3]) -> None:
        csv.field_size_limit(_LONGEST_FIELD)
        self._reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
        self._lines, self._remedy = lines, _TSV_REMEDY if quoting == csv.QUOTE_NONE else _CSV_REMEDY

    def __iter__(self) -> _Cells:
        return self

    def __next__(self) -> list[str]:
        line = self._lines.number + 1
        try:
            return next(self._reader)
        except csv.Error as error:
            raise BadLineError(self._lines.name, line, f"the row cannot be read ({error})", self._remedy) from None


def _header(name: str, columns: list[str], delimiter: str) -> list[str]:
    counts = Counter(columns)
    twice = [column for column, count in counts.items() if column and count > 1]  # spreadsheets add nameless columns
    if twice:
        raise ValueError(f"{name}, line 1: the column {twice[0]!r} occurs twice. Columns need different names.")
    other = next((mark for mark in ";\t|" if mark != delimiter and mark in columns[0]), None)
    if len(columns) == 1 and other:
        remedy = "name the file .tsv" if other == "\t" else f"give --delimiter '{other}'"
        raise ValueError(f"{name}, line 1: one column only, {columns[0]!r}, which is separated otherwise: {remedy}.")
    return columns


def _json_lines(path: Path, lines: TextLines) -> Iterator[Row | BadLineError]:
    for line in _each(lines):
        if isinstance(line, BadLineError):
            yield line
        elif line.strip():
            yield _parsed(path, lines, line)


def _parsed(path: Path, lines: TextLines, line: str) -> Row | BadLineError:
    try:
        content = parse_json(line)
    except ValueError as error:
        return BadLineError(lines.name, lines.number, f"it is not valid JSON ({error})", _ONE_OBJECT)
    if not isinstance(content, dict):
        reason = f"expected a JSON object, found {short(content)}"
        return BadLineError(lines.name, lines.number, reason, _ONE_OBJECT)
    return Row(path, lines.number, content)


def _parquet(path: Path, on_read: Callable[[int], None]) -> Iterator[Row]:
    require("pyarrow", extra="parquet", purpose=f"{path}: reading Parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            number, num_rows, size = 0, file.metadata.num_rows, path.stat().st_size
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                on_read(size * len(batch) // num_rows)
                for values in batch.to_pylist():
                    number += 1
                    yield Row(path, number, values)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}): it is damaged, or in another format.") from error


def check_keys(value: Any, keys: Sequence[str], where: str) -> Mapping[str, Any]:
    """The value, if it is a JSON object with all these keys.

    Raises:
        ValueError: beginning with `where`, and naming what is missing.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected a JSON object with {', '.join(keys)}, found {short(value)}.")
    missing = [key for key in keys if key not in value]
    if missing:
        needed = f": an entry needs {', '.join(keys)}" if len(keys) > 1 else ""
        raise ValueError(f"{where} lacks {', '.join(missing)}{needed}. Add what is missing.")
    return value


def check_list(value: Any, name: str, where: str) -> list[Any]:
    """The value, if it is a list.

    Raises:
        ValueError: beginning with `where`, and naming the column.
    """
    if not isinstance(value, list):
        raise ValueError(f"{where}: {name} must be a list, found {short(value)}. Correct it.")
    return value


def check_text(value: Any, name: str, where: str, *, may_be_empty: bool = False) -> str:
    """The value, if it is a text that can be written as UTF-8.

    Raises:
        ValueError: beginning with `where`, and naming the column.
    """
    if not isinstance(value, str):
        raise ValueError(f"{where}: {name} must be a text, found {short(value)}. Correct it, or leave the entry out.")
    if not value.strip() and not may_be_empty:
        raise ValueError(f"{where}: {name} is empty. Fill it in, or leave the entry out.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}: {name} holds half of a surrogate pair at character {error.start}, which is not a character. "
                "Write the whole character."
            ) from None
    return value


def check_id(value: Any, where: str) -> str:
    """An id: a text, or a whole number as some data sets have it."""
    return str(value) if type(value) is int else check_text(value, "id", where)


def with_unique_ids(rows: Iterable[tuple[str, T]], *, id_of: Callable[[T], Any]) -> Iterator[T]:
    """What was made of rows, each given with its place.

    Raises:
        ValueError: naming both places, if two have the same id.
    """
    seen: dict[str, str] = {}
    for place, row in rows:
        key = str(id_of(row))
        if key in seen:
            raise ValueError(
                f"{place}: the id {key!r} occurs in {seen[key]} already. Ids must be unique: correct or remove one of "
                "the two."
            )
        seen[key] = place
        yield row


def short(value: Any) -> str:
    """A value as messages show it: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
