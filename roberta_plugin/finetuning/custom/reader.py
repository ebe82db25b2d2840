"""A table -> its rows, one at a time: CSV, TSV, JSON Lines or Parquet, also compressed (.gz, .zst, .xz, .bz2).

The name of the file gives the format. The first line of CSV and TSV names the columns. CSV has quotation marks as in
RFC 4180: around fields that hold a comma, a quotation mark or a line end, and doubled within them; in TSV a quotation
mark is an ordinary character. A line of JSON Lines is an object. Text is UTF-8; a byte order mark is ignored.

Example: 'text,label\\n"Good, really.",pos\\n' -> Row(line=2, values={"text": "Good, really.", "label": "pos"}).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.data.text_inputs import count_lines, read_blocks
from roberta_plugin.data.text_inputs_files import COMPRESSIONS, TextInput, find_inputs
from roberta_plugin.extras import require
from roberta_plugin.finetuning.raw_files import short

ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
_LONGEST_FIELD = 1 << 24  # characters; more come from a quotation mark that is not closed
_ROWS_AT_ONCE = 4096  # of a Parquet file


class Row(NamedTuple):
    """One row of a table."""

    path: Path
    line: int
    """Where it begins, counted from 1; in Parquet the number of the row."""
    values: Mapping[str, Any]

    @property
    def where(self) -> str:
        """For messages."""
        return where(self.path, self.line)


def where(path: Path, line: int) -> str:
    """A row for messages, such as `my.csv, line 7`."""
    return f"{path}, {'row' if named_format(path) == 'parquet' else 'line'} {line}"


def named_format(path: Path) -> str | None:
    """The format that the name of a table gives, also of a compressed one; None if it gives none."""
    name = path.name.lower()
    suffix = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    return ENDINGS.get(Path(name.removesuffix(suffix)).suffix)


def format_of(path: Path) -> str:
    """The format that the name of a table gives: csv, tsv, jsonl or parquet.

    Raises:
        ValueError: if the name gives none.
    """
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
    """The rows of a table.

    Args:
        path: the file.
        delimiter: what separates the columns of CSV; None: a comma.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, the line and the remedy, if a row cannot be read, or pyarrow is missing.
    """
    if not path.is_file():
        raise FileNotFoundError(f"The table {path} does not exist: check the path.")
    form = format_of(path)
    if form == "parquet":
        yield from _parquet(path)
        return
    (source,) = find_inputs([path], text_format="text")
    if form == "jsonl":
        yield from _json_lines(path, source)
    elif form == "tsv":
        yield from _separated(path, source, "\t", csv.QUOTE_NONE)
    else:
        yield from _separated(path, source, delimiter or ",", csv.QUOTE_MINIMAL)


def value_of(row: Row, column: str, *, option: str) -> Any:
    """The value of a column.

    Raises:
        ValueError: naming the columns that there are, if it is not among them.
    """
    if column not in row.values:
        place = row.where if named_format(row.path) == "jsonl" else str(row.path)
        found = ", ".join(map(repr, row.values)) or "none"
        raise ValueError(f"{place}: there is no column {column!r}; there are {found}. Name one of them by {option}.")
    return row.values[column]


def _lines(path: Path, source: TextInput) -> Iterator[str]:
    """The lines of a text file, with their ends."""
    number = 1
    for block in read_blocks(source):
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            line = number + _num_line_ends(block[: error.start])
            raise ValueError(
                f"{path}, line {line}: byte 0x{block[error.start]:02x} is not UTF-8. Save the table as UTF-8, for "
                "instance by `iconv -f latin1 -t utf-8`, with the encoding that it has in the place of latin1."
            ) from None
        if "\0" in text:
            line = number + _num_line_ends(block[: block.index(b"\0")])
            raise ValueError(
                f"{path}, line {line}: it holds byte 0x00, so it is a binary file, or UTF-16, which `iconv -f UTF-16LE "
                "-t UTF-8` converts."
            )
        yield from io.StringIO(text.removeprefix("\ufeff") if number == 1 else text, newline="")
        number += count_lines(block)


def _num_line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _separated(path: Path, source: TextInput, delimiter: str, quoting: int) -> Iterator[Row]:
    """Rows of CSV or TSV."""
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(_lines(path, source), delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
    header: list[str] | None = None
    line = 0
    try:
        for values in reader:
            first, line = line + 1, reader.line_num
            if not values:  # an empty line
                continue
            if header is None:
                header = _header(path, values, delimiter)
            elif len(values) != len(header):
                raise ValueError(
                    f"{path}, line {first}: it has {len(values)} columns, and the first line names {len(header)} "
                    f"({', '.join(header)[:80]}). {_remedy(quoting)}"
                )
            else:
                yield Row(path, first, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise ValueError(f"{path}, line {line + 1}: the row cannot be read ({error}). {_remedy(quoting)}") from None


def _remedy(quoting: int) -> str:
    if quoting == csv.QUOTE_NONE:
        return "A text in TSV must hold no tab and no line end: correct the line, or save the table as CSV."
    return (
        "A text with a comma, a quotation mark or a line end needs quotation marks around it, and those inside are "
        "doubled; other separators than a comma are named by --delimiter."
    )


def _header(path: Path, names: list[str], delimiter: str) -> list[str]:
    twice = [name for name in names if name and names.count(name) > 1]  # spreadsheets add columns without a name
    if twice:
        raise ValueError(f"{path}, line 1: the column {twice[0]!r} occurs twice. Columns need different names.")
    other = next((mark for mark in ";\t|" if mark != delimiter and mark in names[0]), None)
    if len(names) == 1 and other:
        remedy = "name the file .tsv" if other == "\t" else f"give --delimiter '{other}'"
        raise ValueError(f"{path}, line 1: one column only, {names[0]!r}, which is separated otherwise: {remedy}.")
    return names


def _json_lines(path: Path, source: TextInput) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, source), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is not valid JSON ({error}). Correct the line.") from None
        if not isinstance(content, dict):
            raise ValueError(f"{path}, line {number}: expected a JSON object, found {short(content)}.")
        yield Row(path, number, content)


def _parquet(path: Path) -> Iterator[Row]:
    require("pyarrow", extra="parquet", purpose=f"{path}: reading Parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(path, number, values)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}): it is damaged, or in another format.") from error
