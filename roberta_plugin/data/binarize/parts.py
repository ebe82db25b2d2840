"""Text -> tasks for worker processes -> part files -> their positions in the .bin and .idx.

Used by `pipeline`. Tasks depend only on the sizes of the inputs, and the parts of a task only on its text. The result
is therefore the same for any number of workers, and an existing part file of the same text need not be made
again.

Only one process can read a compressed file or a pipe, from its beginning; encoding takes several times as long as
reading, so this worker hands parts of the text to idle ones (`Sharing`). If no worker is idle, it encodes the part
itself; many compressed files thus need no hand-over, and memory holds no queue of text.

Example: files of 3, 4 and 25 bytes with part_bytes = 10 -> one task for the first two files, and three tasks for the
pieces [0, 10), [10, 20) and [20, 25) of the third.

A part file is a line of JSON with its counts, the SHA-256 of its text and a CRC-32 of all that it holds, then the
tokens of each item (int32), then the ids of all items in the integer type of the .bin and, where sentences are split, a
byte for each item that says whether it begins a line of the text.

All workers at once write the parts into the .bin and .idx: the counts of the parts give the position of each part's
items. SHA-256 must read a file in order: the parent process computes it over the parts while the workers still encode.

Example: parts of (2 items, 30 tokens) and (1 item, 9 tokens) -> the second one is written at item 2, token 30.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import SharedFiles
from roberta_plugin.data.sentences import split_lines
from roberta_plugin.data.text_inputs import LineRules, count_lines, lines_of, num_lines_before, read_blocks
from roberta_plugin.data.text_inputs_columnar import groups_of
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.data.text_inputs_lines import BadLineError
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.files import atomic_write, write_text

_DIGESTS = ("text_sha256", "crc32")


@dataclass(frozen=True)
class Span:
    """Text of one input: all of it, or the bytes (of Parquet and Arrow the row groups) [start, end)."""

    source: TextInput
    start: int = 0
    end: int | None = None
    is_last_of_file: bool = True


@dataclass(frozen=True)
class Task:
    """The unit of work: several small files, what is read from its beginning, or a piece of another large file.

    Attributes:
        number: position among all tasks.
        spans: the text.
        may_share: whether other workers may encode parts of it.
    """

    number: int
    spans: tuple[Span, ...]
    may_share: bool = False


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of one part or of several."""

    text_bytes: int = 0
    items: int = 0
    blank_lines: int = 0
    tokens: int = 0
    unknown: int = 0
    bad_lines: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + getattr(other, name) for name, count in asdict(self).items()})


def is_done(folder: Path, task: Task) -> bool:
    """True if all parts of a task exist."""
    return done_path(folder, task.number).exists()


def finished_parts(folder: Path, tasks: Sequence[Task]) -> Iterator[Path | None]:
    """Part files of all tasks in order; yields None while the next one does not exist yet."""
    for task in tasks:
        number = 0
        while True:
            done = is_done(folder, task)  # checked before the part, because it is written after the last part
            path = part_path(folder, task.number, number)
            if path.exists():
                number += 1
                yield path
            elif done:
                break
            else:
                yield None


def read_head(path: Path) -> tuple[Counts, str | None]:
    """Counts of a part, and the SHA-256 of the text that it was made from."""
    with open(path, "rb") as file:
        counts, head = _read_head(file)
        return counts, head.get("text_sha256")


def write_part_file(file: IO[bytes], counts: Counts, digest: str, arrays: Sequence[NDArray[Any]]) -> None:
    """Write a part: its counts, the SHA-256 of its text, and `arrays` in the order of the format."""
    head = {**asdict(counts), "text_sha256": digest}
    file.write(json.dumps({**head, "crc32": _crc32(head, (array.data for array in arrays))}).encode() + b"\n")
    for array in arrays:
        file.write(array.data)


def _crc32(head: Mapping[str, Any], contents: Iterable[Any]) -> int:
    value = zlib.crc32(json.dumps(head).encode())
    for content in contents:
        value = zlib.crc32(content, value)
    return value


def _read_head(file: IO[bytes]) -> tuple[Counts, dict[str, Any]]:
    """The counts, and the whole head."""
    try:
        head = json.loads(file.readline())
        return Counts(**{name: value for name, value in head.items() if name not in _DIGESTS}), head
    except (ValueError, TypeError, AttributeError):
        raise _damaged(Path(file.name)) from None


def _damaged(path: Path) -> ValueError:
    return ValueError(f"{path} is damaged: delete {path.parent} and run the same command again.")


class Part(NamedTuple):
    """The arrays of a part."""

    sizes: NDArray[np.int32]
    """Tokens of each item (items,)."""
    ids: NDArray[np.integer[Any]]
    """Ids of all items (tokens,)."""
    begins: NDArray[np.uint8]
    """True for items that begin a line of the text (items,); empty unless sentences are split."""


def read_part(path: Path, dtype: np.dtype[Any], *, checks: bool = True) -> Part:
    """The arrays of a part; `checks`: compare them with their checksum.

    Raises:
        ValueError: naming the file, if it has changed since it was written.
    """
    with open(path, "rb") as file:
        counts, head = _read_head(file)
        sizes = np.fromfile(file, dtype=np.int32, count=counts.items)
        ids = np.fromfile(file, dtype=dtype, count=counts.tokens)
        part = Part(sizes, ids, np.frombuffer(file.read(), dtype=np.uint8))
        crc = head.pop("crc32", None)
        if checks and (len(ids) < counts.tokens or crc != _crc32(head, part)):
            raise _damaged(path)
    return part


def part_path(folder: Path, task: int, number: int) -> Path:
    """Part file of a task."""
    return folder / f"{task:06d}_{number:06d}.part"


def done_path(folder: Path, task: int) -> Path:
    """File that exists once all parts of a task do; it contains their number."""
    return folder / f"{task:06d}.done"


_SECONDS_AT_A_TIME = 0.5


@dataclass(frozen=True)
class Placement:
    """A part file and the position of its items."""

    path: Path
    first_item: int
    first_token: int


class PartsInOrder:
    """Follows the parts in order, as they are finished.

    `placements` has the position of the items of each part seen so far, and `counts` the sum of their counts.
    """

    def __init__(self, folder: Path, tasks: Sequence[Task], dtype: np.dtype[Any]) -> None:
        self.placements: list[Placement] = []
        self.counts = Counts()
        self._dtype = dtype
        self._counting = finished_parts(folder, tasks)
        self._num_hashed = 0
        self._digest = hashlib.sha256()

    def count(self) -> bool:
        """Add the parts that are finished by now; return whether these are all."""
        for path in self._counting:
            if path is None:
                return False
            self.placements.append(Placement(path, self.counts.items, self.counts.tokens))
            self.counts += read_head(path)[0]
        return True

    def hash_some(self) -> bool:
        """Hash ids for a moment; return whether all added parts are hashed."""
        until = time.monotonic() + _SECONDS_AT_A_TIME
        while self._num_hashed < len(self.placements) and time.monotonic() < until:
            part = read_part(self.placements[self._num_hashed].path, self._dtype, checks=False)
            self._digest.update(part.ids.data)
            self._num_hashed += 1
        return self._num_hashed == len(self.placements)

    def count_and_hash(self) -> None:
        """Count and hash for a moment."""
        self.count()
        self.hash_some()

    def sha256(self) -> str:
        """SHA-256 of the .bin."""
        while not self.hash_some():
            pass
        return self._digest.hexdigest()


def place_part(files: SharedFiles, placement: Placement) -> int:
    """Write the items of a part at their position; return the bytes written."""
    sizes, ids, _ = read_part(placement.path, files.dtype)
    files.write(ids, sizes, first_item=placement.first_item, first_token=placement.first_token)
    return 12 * len(sizes) + ids.nbytes


_SECONDS_BETWEEN_LOOKS = 0.02
_SECONDS_IDLE = 0.05  # between an idle worker's looks


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Settings shared by all tasks that encode text."""

    tokenizer: Tokenizer
    rules: LineRules
    blank_line_after_files: bool
    part_bytes: int


@dataclass(frozen=True, kw_only=True)
class Job(Reading):
    """Settings shared by all tasks that write part files.

    Attributes:
        to_model: model id of each tokenizer id, in the integer type of the .bin.
        eos_id, unk_id: model ids of </s>, which ends each item, and <unk>.
        folder: where the part files go.
    """

    to_model: NDArray[np.integer[Any]]
    eos_id: int
    unk_id: int
    folder: Path


class Sharing:
    """State shared by readers and idle workers; created before the workers.

    Every successful `claim` reserves one idle worker, which then waits for the matching `give`.
    """

    def __init__(self, context: Any, *, num_readers: int) -> None:
        self._num_idle = context.Value("i", 0)
        self._num_readers = context.Value("i", num_readers)
        self._num_parts = context.Semaphore(0)
        self._parts = context.SimpleQueue()

    def claim(self) -> bool:
        """Reserve an idle worker, if there is one; `give` must follow."""
        with self._num_idle.get_lock():
            if self._num_idle.value == 0:
                return False
            self._num_idle.value -= 1
            return True

    def give(self, part: Any) -> None:
        """Give the reserved worker its part; None if reading it failed."""
        self._num_parts.release()
        self._parts.put(part)

    def end_reader(self) -> None:
        """Note the end of a task that may share its parts."""
        with self._num_readers.get_lock():
            self._num_readers.value -= 1

    def take(self, is_stopped: Callable[[], bool]) -> Any | None:
        """Wait idle for a part; None when no reader is left or the run was stopped."""
        while True:
            with self._num_idle.get_lock():
                self._num_idle.value += 1
            while not self._num_parts.acquire(timeout=_SECONDS_IDLE):
                if (
                    is_stopped() or self._num_readers.value <= 0
                ) and self.claim():  # no reader has reserved this worker
                    return None
            part = self._parts.get()
            if part is not None:
                return part


class Block(NamedTuple):
    """Whole lines of a span.

    `start` is the span's start, and `line` the number of the first line, counted from the beginning of the
    span.
    """

    data: bytes
    source: TextInput
    start: int
    line: int

    def lines(self, rules: LineRules) -> tuple[list[str], int]:
        """As `lines_of`. Lines before the span are counted only if an error must name a line of the file."""
        try:
            return lines_of(self.data, source=self.source, first_line=self.line, rules=rules)
        except BadLineError as error:
            raise error.after(num_lines_before(self.source, self.start)) from None


class SharedPart(NamedTuple):
    """A part that is handed to another worker: its text, and the part file to write."""

    path: Path
    blocks: list[Block]


def plan_tasks(sources: Sequence[TextInput], sizes: Sequence[int], part_bytes: int) -> list[Task]:
    """Cut large files into pieces of `part_bytes`, tables between row groups, and group neighbouring small files.

    A piece that has one row group, and is larger than a part, may be shared: one worker reads it.
    """
    groups: list[tuple[Span, ...]] = []
    large: set[Span] = set()
    small: list[Span] = []
    small_bytes = 0
    for source, file_bytes in zip(sources, sizes, strict=True):
        edges = _edges(source, file_bytes, part_bytes)
        size = edges[-1][1]
        is_small = size <= part_bytes and not source.is_hashed_when_read
        if is_small and small_bytes + size <= part_bytes:
            small.append(Span(source))
            small_bytes += size
            continue
        groups.append(tuple(small))
        small, small_bytes = [], 0
        if is_small:
            small, small_bytes = [Span(source)], size
        elif source.is_sequential:
            groups.append((Span(source),))
        else:
            for (start, first), (end, last) in itertools.pairwise(edges):
                groups.append((Span(source, start, end, end == edges[-1][0]),))
                if source.is_columnar and last - first > part_bytes:
                    large.update(groups[-1])
    groups.append(tuple(small))
    return [
        Task(number, spans, may_share=len(spans) == 1 and (spans[0].source.is_sequential or spans[0] in large))
        for number, spans in enumerate(group for group in groups if group)
    ]


def _edges(source: TextInput, size: int, part_bytes: int) -> list[tuple[int, int]]:
    """Where an input may be cut, from its beginning to its end: the position, and the bytes of text before it."""
    if not source.is_columnar:
        return [(edge, edge) for edge in [*range(0, size, part_bytes), size]]
    groups = groups_of(source)
    edges, num_bytes = [(0, 0)], 0
    for number, group in enumerate(groups):
        if num_bytes + group.num_bytes - edges[-1][1] > part_bytes and number > edges[-1][0]:
            edges.append((number, num_bytes))
        num_bytes += group.num_bytes
    return [*edges, (len(groups), num_bytes)]


def encode_task(
    job: Job,
    task: Task,
    *,
    on_read: Callable[[int], None],
    on_data: Callable[[bytes], None] = lambda data: None,
    sharing: Sharing | None = None,
) -> None:
    """Write the missing part files of a task, then the file with their number; compare the others with their text.

    `on_read` is called regularly with the number of bytes read, and may raise to stop; `on_data` gets the bytes of a
    pipe.
    """
    num_parts = 0
    shared: list[Path] = []
    for number, numbered in itertools.groupby(numbered_blocks(job, task, on_read, on_data), key=lambda block: block[0]):
        path = part_path(job.folder, task.number, number)
        blocks = (block for _, block in numbered)
        if path.exists():
            _check_part(path, blocks)
        elif sharing is not None and task.may_share and sharing.claim():
            try:
                part = SharedPart(path, list(blocks))
            except BaseException:
                sharing.give(None)
                raise
            sharing.give(part)
            shared.append(path)
        else:
            write_part(path, job, blocks)
        num_parts = number + 1
    while not all(path.exists() for path in shared):
        on_read(0)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    write_text(done_path(job.folder, task.number), json.dumps(num_parts))


def numbered_blocks(
    reading: Reading,
    task: Task,
    on_read: Callable[[int], None],
    on_data: Callable[[bytes], None] = lambda data: None,
) -> Iterator[tuple[int, Block]]:
    """Blocks of text in order, each with the number of its part.

    A part ends with the block that fills it, so the bounds of parts depend only on the text.
    """
    part, bytes_in_part = 0, 0
    for span in task.spans:
        blocks = read_blocks(span.source, start=span.start, end=span.end, on_read=on_read, on_data=on_data)
        if reading.blank_line_after_files and span.is_last_of_file and span.source.form == "text":
            blocks = itertools.chain(blocks, [b"\n"])
        line = 1
        for block in blocks:
            if bytes_in_part >= reading.part_bytes:
                part, bytes_in_part = part + 1, 0
            bytes_in_part += len(block)
            yield part, Block(block, span.source, span.start, line)
            line += count_lines(block, span.source)


def _check_part(path: Path, blocks: Iterable[Block]) -> None:
    """Refuse a finished part if its text has changed since, though the size and time of its file have not."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block.data)
    if read_head(path)[1] != digest.hexdigest():
        raise ValueError(
            f"{block.source.name} has changed since an earlier run, which was stopped, made {path} of it: delete "
            f"{path.parent} and run the same command again."
        )


def write_part(path: Path, job: Job, blocks: Iterable[Block]) -> None:
    """Encode blocks of text into a part file."""
    counts, digest = Counts(), hashlib.sha256()
    paragraphs: list[NDArray[np.uint8]] = []
    sizes: list[NDArray[np.int32]] = []
    ids: list[NDArray[np.integer[Any]]] = []
    for block in blocks:
        digest.update(block.data)
        lines, begins, num_bad = items_of(block, job.rules)
        paragraphs.append(begins)
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
        write_part_file(file, counts, digest.hexdigest(), [*sizes, *ids, *paragraphs])


def items_of(block: Block, rules: LineRules) -> tuple[list[str], NDArray[np.uint8], int]:
    """The lines of the .bin in a block, those that begin a line of the text (empty unless sentences are split), and the
    number of bad lines."""
    lines, num_bad = block.lines(rules)
    if not rules.split_sentences:
        return lines, np.empty(0, dtype=np.uint8), num_bad
    return *split_lines(lines), num_bad


def encode_items(job: Job, lines: Sequence[str]) -> tuple[NDArray[np.integer[Any]], NDArray[np.int32]]:
    """Model ids of lines back to back, each line with </s> at its end; and the tokens of each line, </s> included.

    Example: "a b" and "" -> ids [a, b, </s>, </s>] and sizes [3, 1].
    """
    ids, lengths = job.tokenizer.encode_lines(lines)
    sizes = lengths + np.int32(1)
    ends = np.cumsum(sizes, dtype=np.int64) - 1
    items = np.empty(len(ids) + len(lines), dtype=job.to_model.dtype)
    is_text = np.ones(len(items), dtype=np.bool_)
    is_text[ends] = False
    items[is_text] = job.to_model[ids]
    items[ends] = job.eos_id
    return items, sizes
