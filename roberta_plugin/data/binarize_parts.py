"""Parts of a binarization: text cut into tasks for worker processes, and the part files that they write.

Used by `binarize.py`. Tasks depend on the sizes of the inputs alone, and the parts of a task on its text, so that the
result is the same for any number of workers, and a part file that exists need not be made again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.atomic_files import atomic_write
from roberta_plugin.data.text_inputs import (
    BadLineError,
    LineRules,
    count_lines,
    is_compressed,
    is_jsonl,
    lines_of,
    read_blocks,
)
from roberta_plugin.data.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Span:
    """Text of one input: the whole file, or the bytes [start, end) of a plain one."""

    path: str
    start: int = 0
    end: int | None = None
    is_last_of_file: bool = True


@dataclass(frozen=True)
class Task:
    """What one worker does at a time: several small files, a large compressed one, or a piece of a large plain one."""

    number: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tasks share.

    Attributes:
        tokenizer: text -> tokenizer ids.
        to_model: model id of each tokenizer id, in the integer type of the .bin.
        eos_id, unk_id: model ids of </s>, which ends each item, and <unk>.
        rules: what a line is.
        blank_line_after_files: whether to put a blank line after each file.
        folder: where the part files go.
        part_bytes: bytes of text in a part.
    """

    tokenizer: Tokenizer
    to_model: NDArray[np.integer[Any]]
    eos_id: int
    unk_id: int
    rules: LineRules
    blank_line_after_files: bool
    folder: Path
    part_bytes: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was counted in a part, or in many."""

    text_bytes: int = 0
    items: int = 0
    blank_lines: int = 0
    tokens: int = 0
    unknown: int = 0
    bad_lines: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + getattr(other, name) for name, count in asdict(self).items()})


def plan_tasks(paths: Sequence[str], sizes: Sequence[int], part_bytes: int) -> list[Task]:
    """Cut large plain files into pieces of `part_bytes`, and put neighbouring small files together."""
    groups: list[tuple[Span, ...]] = []
    small: list[Span] = []
    small_bytes = 0
    for path, size in zip(paths, sizes, strict=True):
        if size <= part_bytes and small_bytes + size <= part_bytes:
            small.append(Span(path))
            small_bytes += size
            continue
        groups.append(tuple(small))
        small, small_bytes = [], 0
        if size <= part_bytes:
            small, small_bytes = [Span(path)], size
        elif is_compressed(path):
            groups.append((Span(path),))
        else:
            edges = [*range(0, size, part_bytes), size]
            groups += [(Span(path, start, end, end == size),) for start, end in itertools.pairwise(edges)]
    groups.append(tuple(small))
    return [Task(number, spans) for number, spans in enumerate(group for group in groups if group)]


def encode_task(job: Job, task: Task, *, on_read: Callable[[int], None]) -> None:
    """Write the part files of a task that are not there, then the file that says how many there are."""
    num_parts = 0
    for number, blocks in itertools.groupby(_numbered_blocks(job, task, on_read), key=lambda block: block[0]):
        path = _part_path(job.folder, task.number, number)
        if path.exists():
            _skip_part(path, blocks)  # a compressed file can only be read from its beginning
        else:
            _write_part(path, job, (block for _, block in blocks))
        num_parts = number + 1
    with atomic_write(_done_path(job.folder, task.number), "w") as file:
        file.write(json.dumps(num_parts))


def is_done(folder: Path, task: Task) -> bool:
    """Whether all parts of a task are there."""
    return _done_path(folder, task.number).exists()


def parts_of(folder: Path, task: Task) -> list[Path]:
    """Part files of a task that is done, in order."""
    num_parts = json.loads(_done_path(folder, task.number).read_text())
    return [_part_path(folder, task.number, number) for number in range(num_parts)]


def read_part(path: Path, dtype: np.dtype[Any]) -> tuple[Counts, NDArray[np.int32], NDArray[np.integer[Any]]]:
    """Counts, tokens of each item, and ids of all items of a part."""
    with open(path, "rb") as file:
        counts = Counts(**json.loads(file.readline()))
        sizes = np.fromfile(file, dtype=np.int32, count=counts.items)
        return counts, sizes, np.fromfile(file, dtype=dtype, count=counts.tokens)


def _part_path(folder: Path, task: int, number: int) -> Path:
    return folder / f"{task:06d}_{number:06d}.part"


def _done_path(folder: Path, task: int) -> Path:
    return folder / f"{task:06d}.done"


@dataclass(frozen=True)
class _Block:
    """Whole lines of a span."""

    data: bytes
    span: Span
    number: int

    def lines(self, rules: LineRules) -> tuple[list[str], int]:
        """See `lines_of`. Lines are counted only when an error must tell which one of the file it was."""
        try:
            return lines_of(self.data, path=self.span.path, first_line=1, rules=rules)
        except BadLineError as error:
            path, start = self.span.path, self.span.start
            before_span = read_blocks(path, end=start) if start else iter(())
            before_block = itertools.islice(read_blocks(path, start=start, end=self.span.end), self.number)
            num_before = sum(map(count_lines, itertools.chain(before_span, before_block)))
            raise BadLineError(path, num_before + error.line, error.reason) from None


def _numbered_blocks(job: Job, task: Task, on_read: Callable[[int], None]) -> Iterator[tuple[int, _Block]]:
    """Blocks of text in order, each with the number of its part.

    A part ends with the block that fills it, so the edges of parts follow from the text alone.
    """
    part, bytes_in_part = 0, 0
    for span in task.spans:
        blocks = read_blocks(span.path, start=span.start, end=span.end, on_read=on_read)
        if job.blank_line_after_files and span.is_last_of_file and not is_jsonl(span.path):
            blocks = itertools.chain(blocks, [b"\n"])
        for number, block in enumerate(blocks):
            if bytes_in_part >= job.part_bytes:
                part, bytes_in_part = part + 1, 0
            bytes_in_part += len(block)
            yield part, _Block(block, span, number)


def _skip_part(path: Path, blocks: Iterator[tuple[int, _Block]]) -> None:
    with open(path, "rb") as file:
        counts = Counts(**json.loads(file.readline()))
    if counts.text_bytes != sum(len(block.data) for _, block in blocks):
        raise ValueError(
            f"{path} was made of text that was cut at another place, by another version of a library: delete the "
            "folder it lies in and run the same command again."
        )


def _write_part(path: Path, job: Job, blocks: Iterator[_Block]) -> None:
    counts = Counts()
    sizes: list[NDArray[np.int32]] = []
    ids: list[NDArray[np.integer[Any]]] = []
    for block in blocks:
        lines, num_bad = block.lines(job.rules)
        block_ids, block_sizes = encode_items(job, lines)
        ids.append(block_ids)
        sizes.append(block_sizes)
        counts += Counts(
            text_bytes=len(block.data),
            items=len(lines),
            blank_lines=int(np.count_nonzero(block_sizes == 1)),
            tokens=len(block_ids),
            unknown=int(np.count_nonzero(block_ids == job.unk_id)),
            bad_lines=num_bad,
        )
    with atomic_write(path) as file:
        file.write(json.dumps(asdict(counts)).encode() + b"\n")
        for array in itertools.chain(sizes, ids):
            file.write(array.data)


def encode_items(job: Job, lines: Sequence[str]) -> tuple[NDArray[np.integer[Any]], NDArray[np.int32]]:
    """Model ids of lines, each ended by </s>, back to back; and the tokens of each line, </s> included."""
    ids, lengths = job.tokenizer.encode_lines(lines)
    sizes = lengths + np.int32(1)
    ends = np.cumsum(sizes, dtype=np.int64) - 1
    items = np.empty(len(ids) + len(lines), dtype=job.to_model.dtype)
    is_text = np.ones(len(items), dtype=np.bool_)
    is_text[ends] = False
    items[is_text] = job.to_model[ids]
    items[ends] = job.eos_id
    return items, sizes
