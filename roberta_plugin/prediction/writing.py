"""Answers -> JSON Lines on standard output or in a file, which become another table by its name.

A file appears under its name when it is complete. Until then it is NAME.partial, which one process at a time may write,
and which stays if the run stops at a bad line, so that no answer is lost; it holds JSON Lines also where the file is
to be another table, the mirror of `roberta_plugin/tables.py`:

    csv, tsv   a column for each field of any answer, in the order in which they first occur. A cell is a text as it
               is, and else JSON: numbers, true, lists, objects; empty for null and for missing fields.
               Quotation marks are as in RFC 4180, in tsv with a tab in place of the comma
    parquet    lists and objects have Arrow's types, lists of numbers are in fp32; fields of mixed types are JSON texts
    jsonl      as they are

A device or a pipe, such as /dev/null, is written to as it is, with JSON Lines.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from itertools import islice
from pathlib import Path
from typing import IO, Any

from roberta_plugin.extras import require
from roberta_plugin.files import atomic_write, sync_folder
from roberta_plugin.locks import is_locked_by_us
from roberta_plugin.tables import ENDINGS, Format, without_compression

_ROWS_AT_ONCE = 4096
_FORMATS: tuple[Format, ...] = ("jsonl", "csv", "tsv", "parquet")
_INSTEAD = {
    ".npy": "Name a .parquet file: numpy.stack(pandas.read_parquet(FILE)[COLUMN]) is the array of vectors.",
    ".arrow": "Name a .parquet file: pyarrow.parquet.read_table(FILE) is the table.",
}


class JsonLines:
    """One JSON object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, answer: Mapping[str, Any]) -> None:
        """Append an answer."""
        try:
            line = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except UnicodeEncodeError:  # an id with half a surrogate pair
            line = json.dumps(answer).encode("ascii")
        except ValueError as error:  # in reduced precision, numbers may overflow
            raise _not_finite(answer) from error
        with _naming(self._file.name):
            self._file.write(line + b"\n")

    def flush(self) -> None:
        """Let the reader of a pipe have the answers."""
        with _naming(self._file.name):
            self._file.flush()


class _TextAsBytes(io.RawIOBase):
    """Standard output where it takes text alone, as in a notebook."""

    name = "Standard output"

    def write(self, line: Any) -> int:
        return sys.stdout.write(bytes(line).decode("utf-8"))


def _not_finite(answer: Mapping[str, Any]) -> ValueError:
    return ValueError(
        f"An answer (id {answer.get('id')!r}) holds NaN or infinite numbers, which JSON does not have: use --precision "
        "fp32, or another checkpoint."
    )


@contextmanager
def open_output(path: Path | None) -> Iterator[JsonLines]:
    """A writer to a file, by the ending of its name, or to standard output."""
    if path is None:
        stdout: Any = getattr(sys.stdout, "buffer", None) or _TextAsBytes()
        yield JsonLines(stdout)
        with _naming("Standard output"):
            stdout.flush()
        return
    is_stream = path.exists() and not path.is_file()
    partial = path if is_stream else partial_path(path)
    file = open(path, "wb") if is_stream else _open_alone(path, partial)  # noqa: SIM115  # closing may fail, too
    is_complete = False
    try:
        yield JsonLines(file)
        is_complete = True
    finally:
        with _naming(partial), file:
            file.flush()
            if not is_stream:
                os.fsync(file.fileno())
                if is_complete and table_format(path) == "jsonl":
                    partial.replace(path)  # before the lock ends with the open file
                elif is_complete:
                    with _naming(f"{path}, whose answers are in {partial} as JSON Lines,"):
                        convert(partial, path)
                    partial.unlink()
    if not is_stream:
        sync_folder(path.parent)


def _open_alone(path: Path, partial: Path) -> IO[bytes]:
    """Open NAME.partial for this process alone, and empty it."""
    file = open(partial, "wb", opener=lambda name, flags: os.open(name, flags & ~os.O_TRUNC, 0o666))  # noqa: SIM115
    if not is_locked_by_us(file.fileno(), partial):
        file.close()
        raise ValueError(
            f"--output {path}: another process is writing {partial}. Wait until it has ended, or name another file."
        )
    if os.fstat(file.fileno()).st_size:  # left by a run that stopped
        file.truncate()
    for unfinished in path.parent.glob(f".{escape(path.name)}.????????.tmp"):  # by one that was killed in `tables`
        unfinished.unlink(missing_ok=True)
    return file


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written, before anything is computed.

    Raises:
        ValueError: if it is a folder, its name says no format, or pyarrow is missing.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--output {path}: the folder does not exist. Make it, or name another.")
    if path.is_dir():
        raise ValueError(f"--output {path} is a folder: name a file in it, such as {path / 'answers.jsonl'}.")
    if path.exists() and not path.is_file():
        return
    if table_format(path) == "parquet":
        require("pyarrow", extra="parquet", purpose=f"--output {path}: writing Parquet")


@contextmanager
def _naming(file: str | Path) -> Iterator[None]:
    """Errors of writing, in a sentence that names the file; a reader that closes the pipe is not one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None:  # names the file already
            raise
        raise OSError(f"{file} could not be written ({error.strerror}). Free some space, or name another.") from error


def partial_path(path: Path) -> Path:
    """The file of the answers until it is complete."""
    return path.with_name(f"{path.name}.partial")


def table_format(path: Path) -> Format:
    """The format of a file of answers; JSON Lines without an ending.

    Raises:
        ValueError: if answers are not written in the format of its name.
    """
    name = without_compression(path)
    form = ENDINGS.get(Path(name).suffix) if path.suffix else "jsonl"
    if form in _FORMATS and name == path.name.lower():
        return form
    instead = _INSTEAD.get(Path(name).suffix, "Name such a file.")
    if name != path.name.lower():
        instead = f"Name {path.with_suffix('')}, and compress it afterwards." if form in _FORMATS else instead
    raise ValueError(f"--output {path}: answers are written as .jsonl, .csv, .tsv and .parquet. {instead}")


def convert(lines: Path, path: Path) -> None:
    """Write a file of answers from its JSON Lines."""
    with atomic_write(path) as file:
        if table_format(path) == "parquet":
            _write_columns(lines, file)
        else:
            _write_separated(lines, file, separator="\t" if table_format(path) == "tsv" else ",")


def _answers(lines: Path) -> Iterator[dict[str, Any]]:
    with open(lines, "rb") as file:
        yield from map(json.loads, file)


def _write_separated(lines: Path, file: IO[bytes], *, separator: str) -> None:
    columns = list(dict.fromkeys(name for answer in _answers(lines) for name in answer))
    row = io.StringIO()
    writer = csv.writer(row, delimiter=separator)  # whose line ends let it quote a text with \r, too

    def write(cells: list[str]) -> None:
        writer.writerow(cells)
        line = row.getvalue().removesuffix("\r\n")
        file.write(f"{line}\n".encode("utf-8", "backslashreplace"))  # an id with half a surrogate pair
        row.seek(0)
        row.truncate()

    if columns:
        write(columns)
    for answer in _answers(lines):
        write([_cell(answer.get(name)) for name in columns])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_columns(lines: Path, file: IO[bytes]) -> None:
    import pyarrow
    from pyarrow import parquet

    types: dict[str, Any] = {}
    for rows in _batches(lines):
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            try:
                fields = [types.get(name, pyarrow.null()), pyarrow.array(values).type]
                schemas = [pyarrow.schema([(name, each)]) for each in fields]
                types[name] = pyarrow.unify_schemas(schemas, promote_options="permissive").field(name).type
                parquet.ParquetWriter(io.BytesIO(), pyarrow.schema([(name, types[name])])).close()  # {} is not stored
            except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError):
                types[name] = pyarrow.string()
    vector = pyarrow.list_(pyarrow.float64())
    types = {name: pyarrow.list_(pyarrow.float32()) if each == vector else each for name, each in types.items()}
    schema = pyarrow.schema(types.items())
    with parquet.ParquetWriter(file, schema) as writer:
        for rows in _batches(lines):
            columns = [_array([row.get(name) for row in rows], each) for name, each in types.items()]
            writer.write_table(pyarrow.table(columns, schema=schema))


def _array(values: list[Any], kind: Any) -> Any:
    """Values as an Arrow array; of texts, others as JSON, and half a surrogate pair as its escape."""
    import pyarrow

    if kind == pyarrow.string():
        values = [None if each is None else _cell(each).encode("utf-8", "backslashreplace").decode() for each in values]
    return pyarrow.array(values, kind)


def _batches(lines: Path) -> Iterator[list[dict[str, Any]]]:
    answers = _answers(lines)
    while rows := list(islice(answers, _ROWS_AT_ONCE)):
        yield rows
