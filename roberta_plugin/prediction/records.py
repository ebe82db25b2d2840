"""Lines of JSON Lines, CSV, TSV or plain text -> records with their line numbers, one at a time.

    text    a line is a record {"text": line}
    tsv     the first line names the columns; a line has as many values, separated by tabs, without quoting
    csv     as tsv, with quotation marks, and with commas or the separator of the table that the model was trained on
            around values that hold commas, quotation marks (doubled) or line ends; a record counts as the line where it
            begins
    jsonl   a line is a JSON object

Lines end with LF or CRLF; a byte order mark is ignored, and so are empty lines of JSON Lines, CSV and TSV. A line with
byte 0x00 is refused.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from roberta_plugin.prediction.settings import Format

LONGEST_LINE = 1 << 26  # bytes; a file without line ends must not fill the memory
_MOST_LINES = 10_000  # of a record of CSV
_NOT_CLOSED = "a quotation mark is not closed. Double those within a text, and put a pair of them around it."
_LONE_CR = "a carriage return stands within it. Save the file with LF or CRLF as line ends."
_BINARY = (
    "it holds byte 0x00, so the file is a binary one, or UTF-16, which `iconv -f UTF-16LE -t UTF-8` converts. Give a "
    "file of text."
)
_LONGEST_FIELD = 2**31 - 1  # characters of a value of CSV; the csv module's own limit is 131,072
_BOM = b"\xef\xbb\xbf"
_ENDINGS: Mapping[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".csv": "csv"}


class Line(NamedTuple):
    """A line of the input."""

    number: int
    """Counted from 1."""
    record: dict[str, Any] | None
    """The line's content; None if it cannot be used."""
    error: str = ""
    """The reason, and the remedy."""


def format_of(path: Path | None, first: bytes) -> Format:
    """The form of a file: by the ending of its name, or of standard input by its first line."""
    if path is not None:
        return _ENDINGS.get(path.suffix.lower(), "text")
    return "jsonl" if first.removeprefix(_BOM).lstrip().startswith(b"{") else "text"


def read_lines(
    file: IO[bytes], *, path: Path | None, format: Format | None, delimiter: str = ","
) -> Iterator[tuple[Line, int]]:
    """The records of an open file, and the bytes that were read so far.

    Args:
        file: opened for reading bytes.
        path: its path; None: standard input.
        format: its form; None: see `format_of`.
        delimiter: separator of CSV's columns.
    """
    columns: list[str] | None = None
    number = num_bytes = 0
    of_csv = _CsvRecords(delimiter)
    while raw := file.readline(LONGEST_LINE):
        number, num_bytes = number + 1, num_bytes + len(raw)
        if number == 1:
            raw = raw.removeprefix(_BOM)
            format = format or format_of(path, raw)
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            yield (
                Line(number, None, f"it has more than {LONGEST_LINE >> 20} MiB. Split the text into lines."),
                num_bytes,
            )
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                num_bytes += len(rest)
            continue
        try:
            text = raw.decode("utf-8").removesuffix("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            yield Line(number, None, f"byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8."), num_bytes
            continue
        if "\0" in text:
            yield Line(number, None, _BINARY), num_bytes
        elif format == "text":
            yield Line(number, {"text": text}), num_bytes
        elif format == "csv":
            if (line := of_csv.add(number, text)) is not None:
                yield line, num_bytes
        elif not text.strip():
            continue
        elif format == "jsonl":
            yield _from_json(number, text), num_bytes
        elif "\r" in text:
            yield Line(number, None, _LONE_CR), num_bytes
        elif columns is None:
            columns = text.split("\t")
        else:
            yield _from_columns(number, text.split("\t"), columns), num_bytes
    if (line := of_csv.end()) is not None:
        yield line, num_bytes


class _CsvRecords:
    """Lines of CSV -> records; one with a line end within quotation marks consists of several lines."""

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        self.columns: list[str] | None = None
        self.begun = 0  # the line where the unfinished record begins
        self.unfinished: list[str] = []

    def add(self, number: int, text: str) -> Line | None:
        """The record that ends with a line; None if none does, or if it names the columns."""
        if not self.unfinished and not text.strip():
            return None
        self.begun = self.begun if self.unfinished else number
        is_open = bool(self.unfinished)
        self.unfinished.append(text)
        if is_open and '"' not in text and len(self.unfinished) < _MOST_LINES:
            return None
        try:
            values = _csv_values("\n".join(self.unfinished), self.delimiter)
        except ValueError as error:
            self.unfinished = []
            return Line(self.begun, None, str(error))
        if values is None:
            return None if len(self.unfinished) < _MOST_LINES else self.end()
        self.unfinished = []
        if self.columns is None:
            self.columns = values
            return None
        return _from_columns(self.begun, values, self.columns)

    def end(self) -> Line | None:
        """The fault of an unfinished record, if there is one."""
        is_open, self.unfinished = bool(self.unfinished), []
        return Line(self.begun, None, _NOT_CLOSED) if is_open else None


def _csv_values(text: str, delimiter: str) -> list[str] | None:
    """The values of a record of CSV; None if it continues in the next line, because a quotation mark is not closed.

    Raises:
        ValueError: if a carriage return outside of quotation marks divides it.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    for is_strict in (True, False):  # and if it is not strictly right, as spreadsheets read it
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=is_strict)
        try:
            values = next(records)
            if next(records, None) is not None:
                raise ValueError(_LONE_CR)
            return values
        except csv.Error as error:
            if is_strict and "unexpected end of data" in str(error):
                return None
    return None


def read_records(records: Iterable[Mapping[str, Any] | str]) -> Iterator[tuple[Line, int]]:
    """Records that are in memory, as lines; a string is a text."""
    for number, record in enumerate(records, start=1):
        yield Line(number, {"text": record} if isinstance(record, str) else dict(record)), 0


def check_characters(record: Mapping[str, Any]) -> None:
    """Refuse texts that cannot be written as UTF-8, which JSON's escapes can make.

    Raises:
        ValueError: naming the field.
    """
    for name, value in record.items():
        for text in value if isinstance(value, list) else [value]:
            try:
                _ = isinstance(text, str) and text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"the field {name!r} holds half a surrogate pair, \\u{ord(error.object[error.start]):04x}, which "
                    "is not a character. Correct the escape."
                ) from None


def _from_json(number: int, text: str) -> Line:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Line(number, None, f"it is not valid JSON ({error}). Correct the line.")
    if not isinstance(record, dict):
        return Line(number, None, f"it holds {text[:40]!r} and not a JSON object. Write {{...}} with named fields.")
    return Line(number, record)


def _from_columns(number: int, values: list[str], columns: list[str]) -> Line:
    if len(values) != len(columns):
        return Line(
            number,
            None,
            f"it has {len(values)} columns, and the first line names {len(columns)} ({', '.join(columns)[:80]}). "
            "Correct the line; a text must hold no tab in TSV, and have quotation marks around commas in CSV.",
        )
    return Line(number, dict(zip(columns, values, strict=True)))
