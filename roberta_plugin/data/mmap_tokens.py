"""The .bin/.idx format of fairseq: a memory-mapped reader, a streaming writer, and one of several processes.

No other module knows the format. In the flow of `roberta_plugin/data/__init__.py`, the boundary between work done
once and work done in every epoch.

    PREFIX.bin   token ids back to back, in one integer type
    PREFIX.idx   b"MMIDIDX\\0\\0", version 1 (uint64), type code (uint8), number of items (uint64),
                 tokens of each item (int32), byte position of each item in the .bin (int64)

An item is one line of text and ends with </s>.

Example: the lines "a b" and "" with the ids a = 4, b = 5 and </s> = 2, in uint16:

    train.bin   04 00 05 00 02 00  02 00                ids 4 5 2 and 2
    train.idx   header (26 bytes): magic, version 1, type code 8, 2 items
                03 00 00 00  01 00 00 00                sizes 3 and 1
                00 .. 00     06 00 .. 00                byte positions 0 and 6
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.array_files import ArrayOnDisk, take_mapped
from roberta_plugin.files import atomic_write, sync_folder

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQ")  # magic, version, type code, number of items
_BYTES_PER_ITEM = 4 + 8
_TYPE_OF_CODE = {
    code: np.dtype(name).newbyteorder("<")
    for code, name in (
        (1, "uint8"),
        (2, "int8"),
        (3, "int16"),
        (4, "int32"),
        (5, "int64"),
        (8, "uint16"),
        (9, "uint32"),
        (10, "uint64"),
    )
}
_ITEMS_IN_MEMORY = 2**20  # part of the index in memory at a time
_TOKENS_IN_MEMORY = 2**22


def best_dtype(vocab_size: int) -> np.dtype[Any]:
    """The integer type that fairseq-preprocess chooses for `vocab_size` symbols, specials included.

    Example: 50,264 symbols -> uint16; 250,001 symbols -> uint32.
    """
    if vocab_size < 65500:
        return np.dtype(np.uint16)
    return np.dtype(np.uint32 if vocab_size < 4294967295 else np.int64)


class MmapTokens:
    """Tokens of a .bin file, memory-mapped; opening a kilobyte and a terabyte costs the same.

    Pickles as a path: a data-loader worker opens the files again and shares their pages with all other processes.

    Attributes:
        prefix: path of the two files without .bin and .idx.
        dtype: integer type of the ids in the file.
        tokens: all ids (num_tokens,), a view of the file.
        sizes: tokens of each item (num_items,), int32, a view of the file.
    """

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        """Open PREFIX.bin and PREFIX.idx.

        Raises:
            ValueError: if the .idx does not have this format, or the length of a file does not match the index.
        """
        self.prefix = os.fspath(prefix)
        index_path, bin_path = f"{self.prefix}.idx", f"{self.prefix}.bin"
        for path in (index_path, bin_path):
            if not os.path.isfile(path):
                raise FileNotFoundError(
                    f"{path} does not exist: check the data folder and the name of the split, or make both .bin and "
                    ".idx with `roberta binarize` (or fairseq-preprocess --only-source)."
                )
        self.dtype, self.num_items = _read_header(index_path)
        index = _map_bytes(index_path)
        end_of_sizes = _HEADER.size + 4 * self.num_items
        self.sizes: NDArray[np.int32] = index[_HEADER.size : end_of_sizes].view("<i4")
        self._pointers: NDArray[np.int64] = index[end_of_sizes:].view("<i8")

        expected = 0
        if self.num_items:
            expected = int(self._pointers[-1]) + int(self.sizes[-1]) * self.dtype.itemsize
        _check_file_size(bin_path, expected)
        self.tokens: NDArray[np.integer[Any]] = _map_bytes(bin_path).view(self.dtype)
        self._on_disk = {
            "tokens": ArrayOnDisk(bin_path, self.dtype, 0, len(self.tokens)),
            "sizes": ArrayOnDisk(index_path, np.dtype("<i4"), _HEADER.size, self.num_items),
            "pointers": ArrayOnDisk(index_path, np.dtype("<i8"), end_of_sizes, self.num_items),
        }

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all items together."""
        return len(self.tokens)

    @property
    def tokens_on_disk(self) -> ArrayOnDisk:
        """`tokens` for reading from end to end: a memory map would keep every page that was touched."""
        return self._on_disk["tokens"]

    @property
    def sizes_on_disk(self) -> ArrayOnDisk:
        """`sizes` for reading from end to end."""
        return self._on_disk["sizes"]

    def read_starts(self, first: int, stop: int) -> NDArray[np.int64]:
        """Position in `tokens` of the first token of the items [first, stop) (stop - first,), read from disk."""
        starts: NDArray[np.int64] = self._on_disk["pointers"][first:stop] // self.dtype.itemsize
        return starts

    def sizes_of(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the items (n,)."""
        return take_mapped(self.sizes, items).astype(np.int64)

    def starts_of(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position in `tokens` of the first token of the items (n,)."""
        return take_mapped(self._pointers, items) // self.dtype.itemsize

    def item_at(self, position: int) -> int:
        """The item that contains the token at `position` of `tokens`."""
        return int(np.searchsorted(self._pointers, position * self.dtype.itemsize, side="right")) - 1

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Position in `tokens` of the first token of each item (num_items,); computed once, on first use.

        Needs eight bytes of memory per item; use `starts_of` or `read_starts` for large corpora.
        """
        return self._pointers // self.dtype.itemsize

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, index: int) -> NDArray[np.integer[Any]]:
        """Ids of one item (its size,), a view of the file."""
        if not 0 <= index < self.num_items:
            raise IndexError(f"{self.prefix} has {self.num_items} items, got index {index}.")
        start = int(self._pointers[index]) // self.dtype.itemsize
        return self.tokens[start : start + int(self.sizes[index])]

    def __reduce__(self) -> tuple[type[MmapTokens], tuple[str]]:
        return MmapTokens, (self.prefix,)


def _read_header(path: str) -> tuple[np.dtype[Any], int]:
    """Check the header and the length of an .idx file; return the type of the ids and the number of items."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise ValueError(
            f"{path} is not a memory-mapped index of fairseq (it begins with {head[:9]!r} instead of {_MAGIC!r}): make "
            "it again with `roberta binarize` or with fairseq-preprocess --dataset-impl mmap."
        )
    _, version, code, num_items = _HEADER.unpack(head)
    if version != 1 or code not in _TYPE_OF_CODE:
        raise ValueError(
            f"{path} has format version {version} and token type code {code}; only version 1 and the codes "
            f"{sorted(_TYPE_OF_CODE)} can be read: make it again with `roberta binarize`."
        )
    expected, size = _HEADER.size + _BYTES_PER_ITEM * num_items, os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(_HEADER.size)
        num_documents = int.from_bytes(file.read(8), "little")
    if size == expected + 8 * (1 + num_documents) and num_documents:
        raise ValueError(
            f"{path} is an index of Megatron, which begins as fairseq's and has the places of {num_documents:,} "
            "documents besides: the ids in its .bin are another program's. Make both from the text with "
            "`roberta binarize`."
        )
    _check_file_size(path, expected)
    return _TYPE_OF_CODE[code], num_items


def _check_file_size(path: str, expected: int) -> None:
    size = os.path.getsize(path)
    if size != expected:
        raise ValueError(
            f"{path} has {size:,} bytes, but its index says {expected:,}: it was cut off, or .bin and .idx come "
            "from different runs. Copy both again or make them again with `roberta binarize`."
        )


def _map_bytes(path: str) -> NDArray[np.uint8]:
    """Memory-mapped bytes of a file; an empty file cannot be mapped and gives an empty array."""
    if os.path.getsize(path) == 0:
        return np.empty(0, dtype=np.uint8)
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))


class MmapTokensWriter:
    """Writes items to PREFIX.bin and PREFIX.idx in constant memory, byte for byte as fairseq's builder does.

    A context manager: both files appear when the block ends normally; after an exception neither is left.

        with MmapTokensWriter("data-bin/train", best_dtype(vocab_size)) as writer:
            writer.write(ids, sizes)   # any number of times
    """

    def __init__(self, prefix: str | os.PathLike[str], dtype: np.dtype[Any] | type[np.integer[Any]]) -> None:
        self.prefix = os.fspath(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.num_items = 0
        self.num_tokens = 0
        (self._code,) = (code for code, dtype in _TYPE_OF_CODE.items() if dtype == self.dtype)

    def __enter__(self) -> MmapTokensWriter:
        with ExitStack() as stack:
            # Files are renamed in reverse order: the .idx completes the pair.
            self._index_file: IO[bytes] = stack.enter_context(atomic_write(f"{self.prefix}.idx"))
            self._bin_file: IO[bytes] = stack.enter_context(atomic_write(f"{self.prefix}.bin"))
            self._sizes_file: IO[bytes] = stack.enter_context(
                tempfile.TemporaryFile(dir=Path(self.prefix).parent, prefix=f".{Path(self.prefix).name}.sizes.")
            )
            self._files = stack.pop_all()
        return self

    def write(self, tokens: NDArray[np.integer[Any]], sizes: NDArray[np.integer[Any]]) -> None:
        """Append items: their ids back to back (sum of sizes,), and the tokens of each (items,).

        Raises:
            ValueError: if an id does not fit into the integer type of the file.
        """
        assert int(sizes.sum()) == len(tokens), "sizes and tokens disagree"
        if len(tokens) and not np.can_cast(tokens.dtype, self.dtype):
            limits = np.iinfo(self.dtype)
            low, high = int(tokens.min()), int(tokens.max())
            if low < limits.min or high > limits.max:
                raise ValueError(
                    f"Token id {low if low < limits.min else high} does not fit into the type {self.dtype.name} of "
                    f"{self.prefix}.bin: the vocabulary is larger than the one that the type was chosen for."
                )
        self._bin_file.write(np.ascontiguousarray(tokens, dtype=self.dtype).data)
        self._sizes_file.write(np.ascontiguousarray(sizes, dtype="<i4").data)
        self.num_items += len(sizes)
        self.num_tokens += len(tokens)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._files.__exit__(kind, error, trace)
            return
        with self._files:
            self._write_index()
            self._index_file.flush()
            self._bin_file.flush()
            # A kill between the two renames must not leave the .idx of earlier files beside the new .bin.
            Path(f"{self.prefix}.idx").unlink(missing_ok=True)

    def _write_index(self) -> None:
        """Write header, sizes and byte positions; the positions are the running sum of the sizes."""
        self._index_file.write(_HEADER.pack(_MAGIC, 1, self._code, self.num_items))
        for sizes in self._spooled_sizes():
            self._index_file.write(sizes.data)
        position = 0
        for sizes in self._spooled_sizes():
            ends = position + np.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
            self._index_file.write((ends - sizes.astype("<i8") * self.dtype.itemsize).data)
            position = int(ends[-1])

    def _spooled_sizes(self) -> Iterator[NDArray[np.int32]]:
        self._sizes_file.seek(0)
        while data := self._sizes_file.read(4 * _ITEMS_IN_MEMORY):
            yield np.frombuffer(data, dtype="<i4")


def check_ids(tokens: MmapTokens, vocab_size: int) -> None:
    """Read all ids and refuse any that is not in the vocabulary; takes as long as reading the file."""
    for start in range(0, tokens.num_tokens, _TOKENS_IN_MEMORY):
        part = tokens.tokens_on_disk[start : start + _TOKENS_IN_MEMORY]
        if part.max() >= vocab_size or part.min() < 0:
            bad = int(np.argmax((part >= vocab_size) | (part < 0)))
            raise bad_id_error(tokens, start + bad, vocab_size)


def check_ranges(
    ids: NDArray[np.integer[Any]],
    *,
    vocab_size: int,
    source: MmapTokens,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Refuse ids outside the vocabulary, which the ranges `starts`, `lengths` of `source` hold; names file and line."""
    if ids.size == 0 or (ids.max() < vocab_size and ids.min() >= 0):
        return
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        part = source.tokens[start : start + length]
        is_bad = (part >= vocab_size) | (part < 0)
        if is_bad.any():
            raise bad_id_error(source, start + int(np.argmax(is_bad)), vocab_size)


def check_sizes(tokens: MmapTokens) -> None:
    """Refuse an index whose items do not fill the .bin exactly; reads the sizes only."""
    total = 0
    for first in range(0, tokens.num_items, _ITEMS_IN_MEMORY):
        sizes = tokens.sizes_on_disk[first : first + _ITEMS_IN_MEMORY]
        if sizes.min() < 1:
            item = first + int(np.argmin(sizes))
            raise ValueError(
                f"{tokens.prefix}.idx says that item {item} has {tokens.sizes[item]} tokens: the file is damaged. Copy "
                "it again or make it again."
            )
        total += int(sizes.sum(dtype=np.int64))
    if total != tokens.num_tokens:
        raise ValueError(
            f"{tokens.prefix}.idx lists {total:,} tokens, but {tokens.prefix}.bin has {tokens.num_tokens:,}: one of "
            "them is damaged, or they come from different runs. Copy both again or make them again."
        )


def bad_id_error(tokens: MmapTokens, position: int, vocab_size: int) -> ValueError:
    """The error for the id at `position` of `tokens.tokens`, which is not in the vocabulary."""
    item = tokens.item_at(position)
    return ValueError(
        f"{tokens.prefix}.bin holds the token id {int(tokens.tokens[position])} in item {item} (line {item + 1} of the "
        f"text), but the vocabulary has only {vocab_size} symbols: dict.txt does not match the data. Use the dict.txt "
        "that the data were binarized with, or binarize the text again with this one."
    )


@dataclass(frozen=True, kw_only=True)
class SharedFiles:
    """A .bin and an .idx of known size to be filled by several processes, each with its own items.

    The files get their final names when `publish` renames them.

    Example: 2 items, 3 + 1 tokens. One process calls write(ids[3:], [1], first_item=1, first_token=3), another one
    write(ids[:3], [3], first_item=0, first_token=0), in any order.

    Attributes:
        prefix: path of the two files without .bin and .idx.
        dtype: integer type of the ids.
        num_items, num_tokens: totals of the finished files.
    """

    prefix: Path
    dtype: np.dtype[Any]
    num_items: int
    num_tokens: int

    @property
    def paths(self) -> tuple[Path, Path]:
        """The .bin and the .idx."""
        return self.prefix.with_name(f"{self.prefix.name}.bin"), self.prefix.with_name(f"{self.prefix.name}.idx")

    @property
    def num_bytes(self) -> int:
        """Bytes of both files."""
        return self.num_tokens * self.dtype.itemsize + _HEADER.size + 12 * self.num_items

    def create(self) -> None:
        """Create both files in their full size, with everything but the items."""
        (code,) = (code for code, dtype in _TYPE_OF_CODE.items() if dtype == self.dtype.newbyteorder("<"))
        bin_path, index_path = self.paths
        with open(bin_path, "wb") as file:
            file.truncate(self.num_tokens * self.dtype.itemsize)
        with open(index_path, "wb") as file:
            file.write(_HEADER.pack(_MAGIC, 1, code, self.num_items))
            file.truncate(_HEADER.size + 12 * self.num_items)

    def write(
        self, tokens: NDArray[np.integer[Any]], sizes: NDArray[np.int32], *, first_item: int, first_token: int
    ) -> None:
        """Write items at their position: their ids back to back (sum of sizes,), and the tokens of each (items,)."""
        size = self.dtype.itemsize
        ends = (first_token + np.cumsum(sizes, dtype="<i8")) * size
        bin_path, index_path = self.paths
        with open(bin_path, "r+b", buffering=0) as file:
            _write_at(file.fileno(), np.ascontiguousarray(tokens, self.dtype.newbyteorder("<")), first_token * size)
        with open(index_path, "r+b", buffering=0) as file:
            _write_at(file.fileno(), np.ascontiguousarray(sizes, "<i4"), _HEADER.size + 4 * first_item)
            starts = ends - sizes.astype("<i8") * size
            _write_at(file.fileno(), starts, _HEADER.size + 4 * self.num_items + 8 * first_item)

    def sync(self) -> None:
        """Wait until both files are on disk."""
        for path in self.paths:
            with open(path, "r+b") as file:
                os.fsync(file.fileno())

    def publish(self, prefix: Path) -> None:
        """Rename both files to PREFIX.bin and PREFIX.idx."""
        final = SharedFiles(prefix=prefix, dtype=self.dtype, num_items=0, num_tokens=0).paths
        # A kill between the two renames must not leave the .idx of earlier files beside the new .bin.
        final[1].unlink(missing_ok=True)
        for path, name in zip(self.paths, final, strict=True):
            os.replace(path, name)
        sync_folder(prefix.parent)


def _write_at(descriptor: int, array: NDArray[Any], position: int) -> None:
    data = memoryview(array.data).cast("B") if array.size else memoryview(b"")
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written
