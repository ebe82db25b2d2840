"""Tables -> rows, one at a time: CSV, TSV, JSON Lines, Parquet, Arrow or text, also compressed (.gz, .zst, .xz, .bz2).

The one reader of tables, for training, prediction and benchmarks. The name of the file gives the format:

    csv       the first line names the columns; quotation marks as in RFC 4180: around fields that hold a comma, a
              quotation mark or a line end, and doubled within them
    tsv       the first line names the columns; a quotation mark is an ordinary character, or encloses cells as in CSV
              where all rows show it (`data/text_inputs_quoting`)
    jsonl     a line is a JSON object
    parquet   a row is an object
    arrow     a row is an object: a file, a stream, or a folder that the library `datasets` saved
    folder    of a table in parts, as Spark and Dask write it, in one of these formats; so is a pattern ('data/*.csv')
    text      a line is {"text": line}; of files with any other name, and for prediction only

Text is UTF-8; a byte order mark is ignored. Lines end with LF, CRLF or CR. Empty lines do not count, except in text;
rows of empty cells are left out, with a warning. The names of the columns within a table are a bad line. A row is named
by the line where it begins; in Parquet, Arrow and tables of several files by its number. `data/text_inputs_tables`
reads them.

Example: 'text,label\\n"Good, really.",pos\\n' -> Row(line=2, values={"text": "Good, really.", "label": "pos"}).
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar

from roberta_plugin.data import text_inputs_files
from roberta_plugin.data.text_inputs_columnar import read_rows
from roberta_plugin.data.text_inputs_compressed import COMPRESSIONS
from roberta_plugin.data.text_inputs_files import SPREADSHEET, SPREADSHEETS, dataset_files, find_inputs, is_stream
from roberta_plugin.data.text_inputs_json import check_json_lines
from roberta_plugin.data.text_inputs_lines import LONGEST_LINE, TextLines, each, lines_of_table
from roberta_plugin.data.text_inputs_lines import BadLineError as BadLineError
from roberta_plugin.data.text_inputs_remote import fetch, find, is_url
from roberta_plugin.data.text_inputs_tables import rows_of_lines
from roberta_plugin.data.text_inputs_tables import separator as separator
from roberta_plugin.data.text_inputs_tables import short as short
from roberta_plugin.spelling import meant

Format = Literal["csv", "tsv", "jsonl", "parquet", "arrow", "text"]
ENDINGS: Mapping[str, Format] = {**text_inputs_files.ENDINGS, ".json": "jsonl"}
_PIECE_BYTES = 2**16
IN_MEMORY = Path("the record")
STANDARD_INPUT = Path("standard input")
T = TypeVar("T")


class Row(NamedTuple):
    """A row of a table, or an object within one; its methods check its values, and their errors begin with `where`."""

    path: Path  # `IN_MEMORY` if it was in no file
    line: int  # where it begins, counted from 1; in Parquet the number of the row
    values: Mapping[str, Any]
    inside: str = ""  # what leads to an object within a row, such as ", questions 2"

    @property
    def where(self) -> str:
        """For messages."""
        return (str(self.path) if self.path is IN_MEMORY else where(self.path, self.line)) + self.inside

    def value(self, name: str, *, option: str = "") -> Any:
        """The value of a column or field, which `option` may name."""
        if name not in self.values:
            columns = ", ".join(map(repr, self.values)) or "none"
            remedy = f"Name one of them by {option}." if option else "Add it."
            other = meant(name, self.values)
            question = "" if other is None else f"Is {other!a} meant, which differs only in spelling? "
            raise ValueError(f"{self.where}: there is no column {name!r}; there are {columns}. {question}{remedy}")
        return self.values[name]

    def text(self, name: str, *, option: str = "", may_be_empty: bool = False) -> str:
        """A text as it is in the file."""
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
        for index, allowed in enumerate(values):
            if type(value) is type(allowed) and value == allowed:
                return index
        listed = ", ".join(json.dumps(allowed) for allowed in values)
        raise ValueError(f"{self.where}: {name} is {short(value)}, and must be one of {listed}. Correct it.")

    def object_of(self, name: str) -> Row:
        """An object within this one."""
        return self._within(self.value(name), f", {name}")

    def objects_of(self, name: str) -> list[Row]:
        """A list of objects within this one."""
        values = check_list(self.value(name), name, self.where)
        if not values:
            raise ValueError(f"{self.where}: {name} is empty. Fill it in, or leave the entry out.")
        return [self._within(value, f", {name} {number}") for number, value in enumerate(values, start=1)]

    def _within(self, value: object, place: str) -> Row:
        inside = self.inside + place
        if not isinstance(value, dict):
            begin = self._replace(inside=inside).where
            raise ValueError(f"{begin}: expected a JSON object with named fields, found {short(value)}.")
        return Row(self.path, self.line, value, inside)


def find_table(folder: Path, name: str, *, option: str) -> Path:
    """The table that the user names by an option, relative to a folder; one by URL is fetched into the user's cache.

    Raises:
        FileNotFoundError: if there is none.
    """
    if is_url(name):
        urls, is_folder = find(name)
        urls = dataset_files(name) if is_folder else urls
        return fetch(urls[0]) if len(urls) == 1 else _folder_of([fetch(url) for url in urls])
    path = folder / name.removeprefix("file://")
    if not path.exists() and not _matching(path):
        raise FileNotFoundError(f"{option} {path} does not exist: check the path.")
    return path


def _folder_of(parts: Sequence[Path]) -> Path:
    """A folder, beside copies of the files of a table, that holds the table in parts."""
    key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
    folder = parts[0].parent.with_name(key)
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        link = folder / f"part-{number:05d}-{part.name}"
        if not link.exists():
            link.unlink(missing_ok=True)  # of a copy that is gone
            link.symlink_to(part)
    return folder


def files_of(path: Path) -> list[Path]:
    """The files of a table: itself, the files of a folder that holds one, or of a pattern, in order.

    Raises:
        FileNotFoundError: if a folder holds no table.
    """
    if path.is_dir():
        return [Path(file) for file in dataset_files(str(path))]
    return [path] if path.exists() else _matching(path) or [path]


def _matching(path: Path) -> list[Path]:
    """The files that a pattern names."""
    return [Path(file) for file in sorted(glob.glob(str(path), recursive=True)) if Path(file).is_file()]


def _is_of_several_files(path: Path) -> bool:
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


def where(path: Path, line: int) -> str:
    """A row for messages, such as `my.csv, line 7`."""
    return f"{path}, {_unit_of(path)} {line}"


@functools.lru_cache(maxsize=2**10)
def _unit_of(path: Path) -> str:
    return "row" if named_format(path) in ("parquet", "arrow") or _is_of_several_files(path) else "line"


def named_format(path: Path) -> Format | None:
    """The format that the name of a table gives, also of a compressed one; None if it gives none."""
    if not _is_of_several_files(path):
        return ENDINGS.get(Path(without_compression(path)).suffix)
    try:
        return ENDINGS.get(Path(without_compression(files_of(path)[0])).suffix)
    except (FileNotFoundError, ValueError):
        return "arrow"  # whose reader says what is wrong with the folder


def without_compression(path: Path) -> str:
    """The name of a file in small letters, without the ending of its compression."""
    name = path.name.lower()
    return name.removesuffix(next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), ""))


def format_of(path: Path) -> Format:
    """The format that the name of a table gives."""
    format = named_format(path)
    if format is None and path.suffix.lower() in SPREADSHEETS:
        raise ValueError(f"{path} is a spreadsheet, not text: {SPREADSHEET}.")
    if format is None:
        raise ValueError(
            f"{path}: the name does not say the format. Let it end in {', '.join(ENDINGS)}; all but Parquet and Arrow "
            f"may be compressed ({', '.join(COMPRESSIONS)})."
        )
    if format in ("parquet", "arrow") and path.suffix.lower() in COMPRESSIONS and not path.is_dir():
        raise ValueError(f"{path}: Parquet and Arrow are compressed within. Unpack the file.")
    return format


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
    if path is not None and not path.exists() and not _matching(path):
        raise FileNotFoundError(f"The table {path} does not exist: check the path.")
    if path is not None and _is_of_several_files(path):
        yield from _in_parts(path, format, delimiter, on_read)
        return
    if format in ("parquet", "arrow"):
        if path is None:
            raise ValueError(
                "Standard input cannot be Parquet or Arrow, whose rows are found from the end: name a file."
            )
        (source,) = find_inputs([path], text_format=format)
        yield from (Row(path, number, row) for number, row in enumerate(read_rows(source, on_read=on_read), start=1))
        return
    lines = text_lines(path, on_read=on_read)
    path = path or STANDARD_INPUT
    if format is None:
        format = _format_of_standard_input(lines)
    if format == "text":
        for line in each(lines):
            yield Row(path, lines.number, {"text": line.rstrip("\r\n")}) if isinstance(line, str) else line
        return
    for row in rows_of_lines(lines, format, delimiter=delimiter):
        yield row if isinstance(row, BadLineError) else Row(path, *row)


def _in_parts(
    path: Path, format: Format | None, delimiter: str | None, on_read: Callable[[int], None]
) -> Iterator[Row | BadLineError]:
    """The rows of a table of several files, numbered through; a bad line has its place in the file."""
    number, columns = 0, set[str]()
    for part in files_of(path):
        for row in scan_table(part, format=format, delimiter=delimiter, on_read=on_read):
            if isinstance(row, BadLineError):
                yield row
                continue
            if format not in (None, "jsonl", "text") and set(row.values) != (columns := columns or set(row.values)):
                raise ValueError(
                    f"{part}: its columns are {', '.join(row.values)}, and other files of {path} have "
                    f"{', '.join(columns)}. Name files with the same columns."
                )
            number += 1
            yield Row(path, number, row.values)


def _format_of_standard_input(lines: TextLines) -> Format:
    """JSON Lines if the first line begins with {, else text."""
    head = lines.first_bytes().lstrip()
    if head.startswith(b"["):
        check_json_lines(head, lines.name)
    return "jsonl" if head.startswith(b"{") else "text"


def text_lines(path: Path | None, *, on_read: Callable[[int], None] = lambda num_bytes: None) -> TextLines:
    """The lines of a file, plain or compressed, or of standard input."""
    if path is None:
        return TextLines(str(STANDARD_INPUT), _blocks_of_standard_input())
    (source,) = find_inputs([path], text_format="text")
    return lines_of_table(source, on_read=on_read)


def is_live(path: Path | None) -> bool:
    """True if the rows of a file, or of standard input, may come one by one, as from a pipe or a terminal."""
    if path is not None:
        return is_stream(str(path))
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):  # no file of the operating system, as in a notebook
        return False


def _blocks_of_standard_input() -> Iterator[bytes]:
    """Whole lines as they come, so that none waits for the next one."""
    if sys.stdin is None:
        raise ValueError("Standard input is closed: name a file by --input, or give the texts themselves.")
    file: IO[bytes] = getattr(
        sys.stdin.buffer, "raw", sys.stdin.buffer
    )  # a thread that waits in it holds no lock at exit
    unfinished: list[bytes] = []
    while piece := _next_piece(file):
        before, line_end, after = piece.rpartition(b"\n")
        if line_end:
            yield b"".join([*unfinished, before, line_end])
            unfinished = []
        unfinished.append(after)
        if sum(map(len, unfinished)) > LONGEST_LINE:
            raise ValueError(f"Standard input: a line has more than {LONGEST_LINE >> 20} MiB. Split it into lines.")
    if rest := b"".join(unfinished):
        yield rest


def _next_piece(file: IO[bytes]) -> bytes:
    while (piece := file.read(_PIECE_BYTES)) is None:  # another program made the pipe non-blocking
        select.select([file], [], [])
    return bytes(piece)


def check_keys(value: object, keys: Sequence[str], where: str) -> Mapping[str, Any]:
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


def check_list(value: object, name: str, where: str) -> list[Any]:
    """The value, if it is a list.

    Raises:
        ValueError: beginning with `where`, and naming the column.
    """
    if not isinstance(value, list):
        raise ValueError(f"{where}: {name} must be a list, found {short(value)}. Correct it.")
    return value


def check_text(value: object, name: str, where: str, *, may_be_empty: bool = False) -> str:
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


def check_id(value: object, where: str) -> str:
    """An id: a text, or a whole number as some data sets have it."""
    return str(value) if type(value) is int else check_text(value, "id", where)


def with_unique_ids(
    rows: Iterable[tuple[str, T]], *, id_of: Callable[[T], Any], remedy: str = "correct or remove one of the two"
) -> Iterator[T]:
    """The objects made from rows, each given with its place.

    Raises:
        ValueError: naming both places, if two have the same id.
    """
    places: dict[str, str] = {}
    for place, row in rows:
        key = str(id_of(row))
        if key in places:
            raise ValueError(f"{place}: the id {key!r} occurs in {places[key]} already. Ids must be unique: {remedy}.")
        places[key] = place
        yield row
