"""Tasks of a binarization, the part files that they write, and their positions in the .bin and .idx.

Used by the other files of `binarize`. A part file is a line of JSON with its counts, the SHA-256 of its text and a
CRC-32 of all that it holds, then the tokens of each item (int32), then the ids of all items in the integer type of the
.bin and, where sentences are split, a byte for each item that says whether it begins a line of the text.

All workers at once write the parts into the .bin and .idx: the counts of the parts give the position of each part's
items. SHA-256 must read a file in order: the parent process computes it over the parts while the workers still encode.

Example: parts of (2 items, 30 tokens) and (1 item, 9 tokens) -> the second one is written at item 2, token 30.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import SharedFiles
from roberta_plugin.data.text_inputs_files import TextInput

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
    """Whether all parts of a task exist."""
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


def read_counts(path: Path) -> Counts:
    """Counts of a part."""
    with open(path, "rb") as file:
        return _read_head(file)[0]


def text_sha256(path: Path) -> str | None:
    """SHA-256 of the text that a part was made from."""
    with open(path, "rb") as file:
        return _read_head(file)[1].get("text_sha256")


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


def read_part(path: Path, dtype: np.dtype[Any]) -> tuple[NDArray[np.int32], NDArray[np.integer[Any]]]:
    """Tokens of each item (items,), and ids of all items (tokens,) of a part.

    Raises:
        ValueError: naming the file, if it has changed since it was written.
    """
    with open(path, "rb") as file:
        counts, head = _read_head(file)
        sizes = np.fromfile(file, dtype=np.int32, count=counts.items)
        ids = np.fromfile(file, dtype=dtype, count=counts.tokens)
        crc = head.pop("crc32", None)
        if len(ids) < counts.tokens or crc != _crc32(head, (sizes, ids, file.read())):
            raise _damaged(path)
    return sizes, ids


def read_ids(path: Path, dtype: np.dtype[Any]) -> NDArray[np.integer[Any]]:
    """Ids of all items of a part."""
    with open(path, "rb") as file:
        counts, _ = _read_head(file)
        file.seek(4 * counts.items, 1)
        return np.fromfile(file, dtype=dtype, count=counts.tokens)


def read_begins(path: Path, dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    """Whether each item of a part begins a line of the text (items,)."""
    with open(path, "rb") as file:
        counts, _ = _read_head(file)
        file.seek(4 * counts.items + dtype.itemsize * counts.tokens, 1)
        return np.fromfile(file, dtype=np.uint8, count=counts.items)


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
            self.counts += read_counts(path)
        return True

    def hash_some(self) -> bool:
        """Hash ids for a moment; return whether all added parts are hashed."""
        until = time.monotonic() + _SECONDS_AT_A_TIME
        while self._num_hashed < len(self.placements) and time.monotonic() < until:
            self._digest.update(read_ids(self.placements[self._num_hashed].path, self._dtype).data)
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
    sizes, ids = read_part(placement.path, files.dtype)
    files.write(ids, sizes, first_item=placement.first_item, first_token=placement.first_token)
    return 12 * len(sizes) + ids.nbytes
