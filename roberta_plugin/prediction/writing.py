"""Answers -> JSON Lines on standard output or in a file, which become another table by its name; or vectors -> .npy.

A file appears under its name when it is complete. Until then it is NAME.partial, which one process at a time may write,
and which stays if the run stops at a bad line, so that no answer is lost; it holds JSON Lines also where the file is
to be another table (`tables`). A device or a pipe, such as /dev/null, is written to as it is, with JSON Lines.

Shapes: N answers, D numbers of a vector.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from roberta_plugin.data.text_inputs_files import zstandard
from roberta_plugin.extras import require
from roberta_plugin.files import sync_folder
from roberta_plugin.kinds.embedding import VECTOR
from roberta_plugin.locks import is_locked_by_us
from roberta_plugin.prediction import tables


def is_array(path: Path | None) -> bool:
    """Whether a file is to hold vectors as an array."""
    return path is not None and path.suffix.lower() == ".npy"


class Writer(Protocol):
    """Takes answers one by one."""

    def write(self, answer: Mapping[str, Any]) -> None:
        """Append an answer."""


class JsonLines:
    """One JSON object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, answer: Mapping[str, Any]) -> None:
        """See `Writer`."""
        try:
            line = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except UnicodeEncodeError:  # an id with half a surrogate pair
            line = json.dumps(answer).encode("ascii")
        except ValueError as error:  # in reduced precision, numbers may overflow
            raise _not_finite(answer) from error
        with _named(self._file.name):
            self._file.write(line + b"\n")


class Vectors:
    """An array (N, D) of fp32; a record that was skipped has NaN in its row."""

    def __init__(self, file: IO[bytes], dim: int) -> None:
        self._file, self._dim, self._count = file, dim, 0
        self._header()

    def write(self, answer: Mapping[str, Any]) -> None:
        """See `Writer`."""
        vector = np.asarray(answer.get(VECTOR, [np.nan] * self._dim), dtype="<f4")
        if VECTOR in answer and not np.isfinite(vector).all():
            raise _not_finite(answer)
        with _named(self._file.name):
            self._file.write(vector.tobytes())
        self._count += 1

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
def open_output(path: Path | None, *, dim: int) -> Iterator[Writer]:
    """A writer to a file, by the ending of its name, or to standard output."""
    if path is None:
        yield JsonLines(sys.stdout.buffer)
        with _named("Standard output"):
            sys.stdout.buffer.flush()
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
        with _named(partial), file:
            if vectors is not None:
                vectors.finish()
            file.flush()
            if not is_stream:
                os.fsync(file.fileno())
                if is_complete and (vectors is not None or tables.is_plain(path)):
                    partial.replace(path)  # before the lock ends with the open file
                elif is_complete:
                    with _named(f"{path}, whose answers are in {partial} as JSON Lines,"):
                        tables.convert(partial, path)
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
        ValueError: if it is a folder, its name says another format, or pyarrow is missing.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--output {path}: the folder does not exist. Make it, or name another.")
    if path.is_dir():
        raise ValueError(f"--output {path} is a folder: name a file in it, such as {path / 'answers.jsonl'}.")
    if path.exists() and not path.is_file():
        return
    if not is_array(path) and tables.table_format(path) == "parquet":
        require("pyarrow", extra="parquet", purpose=f"--output {path}: writing Parquet")
    if path.suffix.lower() == ".zst":
        zstandard(f"--output {path}")


@contextmanager
def _named(file: Any) -> Iterator[None]:
    """Errors of writing, in a sentence that names the file; a reader that closes the pipe is not one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None:  # is named already
            raise
        raise OSError(f"{file} could not be written ({error.strerror}). Free some space, or name another.") from error


def partial_path(path: Path) -> Path:
    """The file of the answers until it is complete."""
    return path.with_name(f"{path.name}.partial")
