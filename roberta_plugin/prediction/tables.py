"""Answers in JSON Lines -> the table that the name of their file says: the mirror of `roberta_plugin/tables.py`.

    csv, tsv   a column for each field of any answer, in the order in which they first occur. A cell is a text as it
               is, and else JSON: numbers, true, lists, objects; empty for null and where an answer lacks the field
    parquet    lists and objects are those of Arrow; what has no common type is JSON in a text
    jsonl      as they are

All but Parquet also compressed (.gz, .zst, .xz, .bz2).
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from roberta_plugin.data.text_inputs_files import zstandard
from roberta_plugin.files import atomic_write
from roberta_plugin.kinds.embedding import VECTOR
from roberta_plugin.tables import Format, format_of, named_format

_ROWS_AT_ONCE = 4096
_COMPRESSED: Mapping[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0),
    ".zst": lambda file: zstandard(file.name).ZstdFile(file, "w"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
}


def table_format(path: Path) -> Format:
    """The format of a file of answers; JSON Lines without an ending.

    Raises:
        ValueError: if the name says a format that is not written.
    """
    if not Path(path.name.lower().removesuffix(_compression(path))).suffix:
        return "jsonl"
    try:
        found = format_of(path)
        if found == "arrow":
            raise ValueError
        return found
    except ValueError:
        raise ValueError(
            f"--output {path}: there is no such format. Let the name end in .jsonl, .csv or .tsv, which may be "
            f"compressed ({', '.join(_COMPRESSED)}), or in .parquet; in .npy for embeddings."
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
        if form == "parquet":
            _write_parquet(lines, file)
            return
        with closing(_COMPRESSED.get(_compression(path), _Unchanged)(file)) as out:
            if form == "jsonl":
                with open(lines, "rb") as source:
                    shutil.copyfileobj(source, out)
            else:
                _write_separated(lines, out, path)


class _Unchanged:
    """A file that stays open when it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write

    def close(self) -> None:
        """Nothing."""


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


def _write_parquet(lines: Path, file: IO[bytes]) -> None:
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
