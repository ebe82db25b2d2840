"""Parquet and Arrow -> batches of rows, and the sizes of their row groups.

A part [start, end) of a file is the row groups of Parquet, or the record batches of Arrow, with these numbers. Memory
holds one row group of the columns that are read.
"""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from roberta_plugin.data.text_inputs_files import TextInput, open_input
from roberta_plugin.data.text_inputs_remote import RemoteError
from roberta_plugin.extras import require
from roberta_plugin.spelling import meant

_CONTINUES = b"\xff\xff\xff\xff"  # before each message of an Arrow stream; before no bytes at its end
_ROWS_AT_ONCE = 4096  # of a row group


class Group(NamedTuple):
    """A row group of Parquet, or a record batch of Arrow: its rows, and the bytes of the text, not compressed."""

    num_rows: int
    num_bytes: int


@functools.lru_cache(maxsize=2**14)
def groups_of(source: TextInput) -> tuple[Group, ...]:
    """The row groups of Parquet or Arrow; an Arrow file that is read by URL counts as one, of unknown rows.

    Raises:
        ValueError: if it has no such column of text, or the file cannot be read.
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


def read_rows(source: TextInput, *, on_read: Callable[[int], None]) -> Iterator[Mapping[str, Any]]:
    """The rows of Parquet or Arrow, with all columns."""
    for batch in read_batches(source, on_read=on_read):
        yield from batch.to_pylist()


def read_batches(
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
