"""Answers -> JSON Lines on standard output or in a file, which become another table by its name; or vectors -> .npy.

A file appears under its name when it is complete. Until then it is NAME.partial, which one process at a time may write,
and which stays if the run stops at a bad line, so that no answer is lost; it holds JSON Lines also where the file is
to be another table, the mirror of `roberta_plugin/tables.py`:

    csv, tsv   a column for each field of any answer, in the order in which they first occur. A cell is a text as it
               is, and else JSON: numbers, true, lists, objects; empty for null and where an answer lacks the field
    parquet    lists and objects are those of Arrow; what has no common type is JSON in a text
    arrow      the same, in Arrow's file format
    jsonl      as they are

All but Parquet and Arrow also compressed (.gz, .zst, .xz, .bz2). A device or a pipe, such as /dev/null, is written to
as it is, with JSON Lines.

Shapes: N answers, D numbers of a vector.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from glob import escape
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from roberta_plugin.data.text_inputs_compressed import zstandard
from roberta_plugin.extras import require
from roberta_plugin.files import atomic_write, sync_folder
from roberta_plugin.finetuning.kinds.embedding import VECTOR
from roberta_plugin.locks import is_locked_by_us
from roberta_plugin.tables import Format, format_of, named_format

_ROWS_AT_ONCE = 4096
_COLUMNAR: Mapping[str, str] = {"parquet": "Parquet", "arrow": "Arrow"}
_COMPRESSED: Mapping[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0),
    ".zst": lambda file: zstandard(file.name).ZstdFile(file, "w"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
}


def is_array(path: Path | None) -> bool:
    """Whether a file is to hold vectors as an array."""
    return path is not None and path.suffix.lower() == ".npy"


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


class Vectors:
    """An array (N, D) of fp32; a record that was skipped has NaN in its row."""

    def __init__(self, file: IO[bytes], dim: int) -> None:
        self._file, self._dim, self._count = file, dim, 0
        self._header()

    def write(self, answer: Mapping[str, Any]) -> None:
        """Append an answer."""
        vector = np.asarray(answer.get(VECTOR, [np.nan] * self._dim), dtype="<f4")
        if VECTOR in answer and not np.isfinite(vector).all():
            raise _not_finite(answer)
        with _naming(self._file.name):
            self._file.write(vector.tobytes())
        self._count += 1

    def flush(self) -> None:
        """Nothing: the file is complete at the end."""

    def finish(self) -> None:
        """Write the number of rows into the header, which has room for it."""
        self._file.seek(0)
        self._header()
        self._file.seek(0, os.SEEK_END)

    def _header(self) -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": (self._count, self._dim)}
        np.lib.format.write_array_header_1_0(self._file, header)


def _not_finite(answer: Mapping[str, Any]) -> ValueError:
    return ValueError(
        f"An answer (id {answer.get('id')!r}) holds NaN or infinite numbers, which JSON does not have: use --precision "
        "fp32, or another checkpoint."
    )


@contextmanager
def open_output(path: Path | None, *, dim: int) -> Iterator[JsonLines | Vectors]:
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
    vectors = None if is_stream or not is_array(path) else Vectors(file, dim)
    is_complete = False
    try:
        yield vectors or JsonLines(file)
        is_complete = True
    finally:
        with _naming(partial), file:
            if vectors is not None:
                vectors.finish()
            file.flush()
            if not is_stream:
                os.fsync(file.fileno())
                if is_complete and (vectors is not None or is_plain(path)):
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
    if not is_array(path) and table_format(path) in _COLUMNAR:
        require("pyarrow", extra="parquet", purpose=f"--output {path}: writing {_COLUMNAR[table_format(path)]}")
    if path.suffix.lower() == ".zst":
        zstandard(f"--output {path}")


@contextmanager
def _naming(file: Any) -> Iterator[None]:
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
        ValueError: if the name says no format of a table.
    """
    if not Path(path.name.lower().removesuffix(_compression(path))).suffix:
        return "jsonl"
    try:
        return format_of(path)
    except ValueError:
        raise ValueError(
            f"--output {path}: there is no such format. Let the name end in .jsonl, .csv or .tsv, which may be "
            f"compressed ({', '.join(_COMPRESSED)}), or in .parquet or .arrow; in .npy for embeddings."
        ) from None


def is_plain(path: Path) -> bool:
    """Whether the file holds JSON Lines as they are."""
    return table_format(path) == "jsonl" and not _compression(path)


def convert(lines: Path, path: Path) -> None:
    """Write a file of answers from its JSON Lines.

    Raises:
        ValueError: naming the column and the answer, if TSV cannot hold a text.
    """
    form = table_format(path)
    with atomic_write(path) as file:
        if form in _COLUMNAR:
            _write_columns(lines, file, form)
            return
        with _COMPRESSED.get(_compression(path), nullcontext)(file) as out:
            if form == "jsonl":
                with open(lines, "rb") as source:
                    shutil.copyfileobj(source, out)
            else:
                _write_separated(lines, out, path)


def _compression(path: Path) -> str:
    suffix = path.suffix.lower()
    return suffix if suffix in _COMPRESSED else ""


def _answers(lines: Path) -> Iterator[dict[str, Any]]:
    with open(lines, "rb") as file:
        yield from map(json.loads, file)


def _write_separated(lines: Path, out: Any, path: Path) -> None:
    columns = list(dict.fromkeys(name for answer in _answers(lines) for name in answer))
    is_csv = named_format(path) == "csv"
    row = io.StringIO()
    writer = csv.writer(row)  # whose line ends let it quote a text with \r, too

    def write(cells: list[str]) -> None:
        if is_csv:
            writer.writerow(cells)
        line = row.getvalue().removesuffix("\r\n") if is_csv else "\t".join(cells)
        out.write(f"{line}\n".encode("utf-8", "backslashreplace"))  # an id with half a surrogate pair
        row.seek(0)
        row.truncate()

    if columns:
        write(columns)
    for number, answer in enumerate(_answers(lines), start=1):
        cells = [_cell(answer.get(name)) for name in columns]
        for name, cell in zip(columns, cells, strict=True):
            if not is_csv and not {"\t", "\n", "\r"}.isdisjoint(cell):
                raise ValueError(
                    f"--output {path}: {name!r} of answer {number} has a tab or a line end, which TSV cannot hold. The "
                    f"answers are in {lines}, as JSON Lines; name a .csv or .jsonl file."
                )
        write(cells)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_columns(lines: Path, file: IO[bytes], form: Format) -> None:
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
    if VECTOR in types:
        types[VECTOR] = pyarrow.list_(pyarrow.float32())
    schema = pyarrow.schema(types.items())
    with parquet.ParquetWriter(file, schema) if form == "parquet" else pyarrow.ipc.new_file(file, schema) as writer:
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
