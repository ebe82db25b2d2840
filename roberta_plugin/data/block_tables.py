"""The blocks of a .bin file of any size: a table, made once, kept in a file and memory-mapped from then on.

Part of the stage `blocks` of the flow in `roberta_plugin/data/__init__.py`. Mode `none` needs no table. The table of
`eos` lists the lines that are blank or longer than a block: every other line is a block, and the .idx lists those.
The table of `complete` and `complete_doc` has the start and length of each block, 10 bytes per block.

The file lies beside the data or, if that folder is not writable, in the user's cache folder. It belongs to one .idx,
identified by size and modification time; a changed .idx gets a new table. The processes of a machine make it once,
under a lock; without working locks each makes its own, and the last one stays.

    4096 bytes of JSON, padded with blanks: "made_of" (identifies the table), "numbers", "arrays" (name, type, length,
    CRC-32 of a sample)
    the arrays, one after the other, each padded to a multiple of 8 bytes

Example: items of 3, 12, 1 and 4 tokens, blocks of 5, mode `eos`: item 1 is long; its first block is number 1 and the
block after its last is number 4. Item 2 is a blank line without a block. So items = [1, 2], first = [1, 4],
after = [4, 4].

Shapes: n blocks, L items that are not one block.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.array_files import take_mapped
from roberta_plugin.data.blocks import (
    Blocks,
    BreakMode,
    EqualBlocks,
    UnequalBlocks,
    count_item_blocks,
    count_items,
    cut_items,
    make_blocks,
    windows,
)
from roberta_plugin.data.mmap_tokens import MmapTokens, check_sizes
from roberta_plugin.data.rounding import round_up
from roberta_plugin.files import atomic_write, cache_folder
from roberta_plugin.locks import one_writer

logger = logging.getLogger(__name__)

_ITEMS_WITHOUT_TABLE = 2**20  # up to this many are cut in a moment and need no file
_HEAD_BYTES = 4096
_FORMAT = 4
_SAMPLED = 4096  # values of an array that are compared: of up to 2 million, every page of the file


def open_blocks(tokens: MmapTokens, *, block_length: int, break_mode: BreakMode) -> Blocks:
    """Cut a .bin file into blocks, or open the table of an earlier run; see `blocks` for the modes.

    Raises:
        ValueError: as `make_blocks`, or if the part of the .idx that is read is damaged.
    """
    if tokens.num_items <= _ITEMS_WITHOUT_TABLE:
        check_sizes(tokens)
    if break_mode == "none":
        return EqualBlocks(tokens.num_tokens, block_length=block_length)
    if tokens.num_items <= _ITEMS_WITHOUT_TABLE:
        return make_blocks(tokens.sizes, block_length=block_length, break_mode=break_mode)
    made_of = describe_table(tokens, block_length, break_mode)
    if break_mode == "eos":
        table = open_table(made_of, tokens.prefix, lambda file: _write_unusual_items(file, made_of, tokens))
        return ItemBlocks(tokens, table, block_length=block_length)
    table = open_table(made_of, tokens.prefix, lambda file: _write_packed(file, made_of, tokens))
    return UnequalBlocks(table.arrays["starts"], table.arrays["lengths"], **table.numbers)


class Table(NamedTuple):
    """The contents of a table: numbers about all blocks, and mapped arrays."""

    numbers: dict[str, int]
    arrays: dict[str, NDArray[Any]]


class ItemBlocks:
    """Break mode `eos`: each block is an item, except that a long item is several blocks and a blank line none."""

    are_equal_in_length = False

    def __init__(self, tokens: MmapTokens, unusual: Table, *, block_length: int) -> None:
        self._tokens = tokens
        self._block_length = block_length
        # For each item that is not exactly one block (L,): its number, its first block, and the block after its last.
        self._items, self._first, self._after = (unusual.arrays[name] for name in ("items", "first", "after"))
        self.num_split, self.num_separators, self.longest = (
            unusual.numbers[name] for name in ("num_split", "num_separators", "longest")
        )
        self._num_blocks = tokens.num_items
        if len(self._items):
            self._num_blocks += int(self._after[-1]) - int(self._items[-1]) - 1

    def __len__(self) -> int:
        return self._num_blocks

    def bounds(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First token (n,) and number of tokens (n,) of the blocks `indices` (n,)."""
        items, pieces = self._items_of(indices)
        skipped = pieces * self._block_length
        return self._tokens.starts_of(items) + skipped, self._lengths_of(items, skipped)

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of tokens (n,) of the blocks `indices` (n,)."""
        items, pieces = self._items_of(indices)
        return self._lengths_of(items, pieces * self._block_length)

    def _lengths_of(self, items: NDArray[np.int64], skipped: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths: NDArray[np.int64] = np.minimum(self._tokens.sizes_of(items) - skipped, self._block_length)
        return lengths

    def _items_of(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The item of each block (n,), and the block's number within the item (n,)."""
        if not len(self._items):
            return indices, np.zeros_like(indices)
        before = np.searchsorted(self._first, indices, side="right") - 1  # the last item of them not after the block
        at = np.maximum(before, 0)
        first, after = take_mapped(self._first, at), take_mapped(self._after, at)
        item = take_mapped(self._items, at)
        is_piece = (before >= 0) & (indices < after)
        items = np.where(is_piece, item, item + 1 + indices - after)
        items = np.where(before >= 0, items, indices)
        return items, np.where(is_piece, indices - first, 0)


def describe_table(tokens: MmapTokens, block_length: int, break_mode: str) -> dict[str, Any]:
    """Description of a table's inputs; equal descriptions have equal tables."""
    index = os.stat(f"{tokens.prefix}.idx")
    return {
        "format": _FORMAT,
        "break_mode": break_mode,
        "block_length": block_length,
        "index_bytes": index.st_size,
        "index_changed_ns": index.st_mtime_ns,
        "tokens": tokens.num_tokens,
    }


def _write_packed(file: IO[bytes], made_of: dict[str, Any], tokens: MmapTokens) -> None:
    check_sizes(tokens)
    options = {"block_length": made_of["block_length"], "break_mode": made_of["break_mode"]}
    numbers = {**count_items(tokens.sizes_on_disk, **options)._asdict(), "longest": 0}
    length_type = np.dtype("<u2" if made_of["block_length"] < 2**16 else "<i4")

    def parts() -> Iterator[dict[str, NDArray[Any]]]:
        for part in cut_items(tokens.sizes_on_disk, **options):
            numbers["longest"] = max(numbers["longest"], int(part.lengths.max(initial=0)))
            yield {"lengths": part.lengths, "starts": part.starts}

    write_table(file, made_of, numbers, {"lengths": length_type, "starts": np.dtype("<i8")}, parts())


def _write_unusual_items(file: IO[bytes], made_of: dict[str, Any], tokens: MmapTokens) -> None:
    check_sizes(tokens)
    block_length = made_of["block_length"]
    counts = count_items(tokens.sizes_on_disk, block_length=block_length, break_mode="eos")
    numbers = {**counts._asdict(), "longest": 0}

    def parts() -> Iterator[dict[str, NDArray[Any]]]:
        extra = 0  # blocks of earlier items beyond one each
        for start, sizes in windows(tokens.sizes_on_disk):
            numbers["longest"] = max(numbers["longest"], min(int(sizes.max(initial=0)), block_length))
            num_blocks = count_item_blocks(sizes, block_length)
            items = np.flatnonzero(num_blocks != 1)
            extras = num_blocks[items] - 1
            after = start + items + 1 + extra + np.cumsum(extras)
            yield {"items": start + items, "first": after - 1 - extras, "after": after}
            extra += int(extras.sum())

    write_table(file, made_of, numbers, dict.fromkeys(("items", "first", "after"), np.dtype("<i8")), parts())


def write_table(
    file: IO[bytes],
    made_of: dict[str, Any],
    numbers: dict[str, int],
    types: dict[str, np.dtype[Any]],
    parts: Iterator[dict[str, NDArray[Any]]],
) -> None:
    """Write a table to an empty file; `numbers` are complete once `parts` is exhausted."""
    lengths = dict.fromkeys(types, 0)
    with ExitStack() as stack:
        files = {name: stack.enter_context(_temporary_file_beside(file)) for name in types}
        for part in parts:
            for name, values in part.items():
                files[name].write(values.astype(types[name]).tobytes())
                lengths[name] += len(values)
        file.seek(_HEAD_BYTES)
        for part_file in files.values():
            part_file.seek(0)
            shutil.copyfileobj(part_file, file)
            file.write(bytes(-file.tell() % 8))
        head = {
            "made_of": made_of,
            "numbers": numbers,
            "arrays": [
                [name, type_.str, lengths[name], _sample(_map_array(files[name], type_, lengths[name]))]
                for name, type_ in types.items()
            ],
        }
        file.seek(0)
        file.write(json.dumps(head).encode().ljust(_HEAD_BYTES))
    file.flush()


def _temporary_file_beside(file: IO[bytes]) -> IO[bytes]:
    folder = os.path.dirname(file.name) if isinstance(file.name, str) else None
    return tempfile.TemporaryFile(dir=folder)


def _read(file: IO[bytes], made_of: dict[str, Any]) -> Table | None:
    """The table in a file, or None if it is damaged or belongs to other data or another version."""
    try:
        head = json.loads(file.read(_HEAD_BYTES))
        if head["made_of"] != made_of:
            return None
        offset, arrays = _HEAD_BYTES, {}
        for name, type_, length, sample in head["arrays"]:
            dtype = np.dtype(type_)
            arrays[name] = _map_array(file, dtype, length, offset)
            if _sample(arrays[name]) != sample:
                return None
            offset += round_up(length * dtype.itemsize, 8)
        if os.fstat(file.fileno()).st_size != offset:
            return None
        return Table(head["numbers"], arrays)
    except (ValueError, KeyError, TypeError, AttributeError):  # JSON's error is a ValueError
        return None


def _map_array(file: IO[bytes], dtype: np.dtype[Any], length: int, offset: int = 0) -> NDArray[Any]:
    if not length:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=(length,)))


def _sample(array: NDArray[Any]) -> int:
    """CRC-32 of values from all over an array, the last one included: finds holes and zeros in a moment."""
    return zlib.crc32(array[:: -max(1, len(array) // _SAMPLED)].tobytes())


def open_table(made_of: dict[str, Any], prefix: str, write: Callable[[IO[bytes]], None]) -> Table:
    """The table, from an existing file or made in the first writable folder."""
    paths = _possible_paths(made_of, prefix)
    for path in paths:
        if (table := _open(path, made_of)) is not None:
            return table
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with one_writer(path):
                if (table := _open(path, made_of)) is not None:  # made by the process that held the lock
                    return table
                _make(path, write)
            if (table := _open(path, made_of)) is not None:
                return table
        except OSError as error:
            logger.info(f"the table of blocks cannot be saved in {path.parent} ({error.strerror or error})")
    logger.warning(
        f"The table of blocks of {prefix} cannot be saved, so every process makes its own at every start: make "
        f"{paths[0].parent} or {paths[-1].parent} writable."
    )
    with tempfile.TemporaryFile() as file:
        write(file)
        file.seek(0)
        table = _read(file, made_of)
    assert table is not None
    return table


def _possible_paths(made_of: dict[str, Any], prefix: str) -> list[Path]:
    """Paths beside the data, and in the user's cache folder, where a hash identifies the data."""
    data = Path(prefix).absolute()
    # fairseq takes a file whose name begins with "valid1" for a validation set.
    name = f"blocks-{data.name}-{made_of['break_mode']}-{made_of['block_length']}.table"
    cache = cache_folder()
    key = hashlib.sha256(json.dumps([os.fspath(data), made_of]).encode()).hexdigest()[:16]
    return [data.parent / name, cache / f"{key}-{name}"]


def _open(path: Path, made_of: dict[str, Any]) -> Table | None:
    try:
        with open(path, "rb") as file:
            return _read(file, made_of)
    except OSError:
        return None


def _make(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    logger.info(f"making the table of blocks {path}, once for this data folder ...")
    started = time.monotonic()
    with atomic_write(path) as file:
        write(file)
    logger.info(f"made {path} in {time.monotonic() - started:.1f} s: {path.stat().st_size:,} bytes")
