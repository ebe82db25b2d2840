"""Several processes write one .bin/.idx pair of known size, each its own items at their final positions.

Part of `mmap_tokens`, whose format it shares. The files get their final names when `publish` renames them.

Example: 2 items, 3 + 1 tokens. One process calls write(ids[3:], [1], first_item=1, first_token=3), another one
write(ids[:3], [3], first_item=0, first_token=0), in any order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import _HEADER, _MAGIC, _TYPE_OF_CODE
from roberta_plugin.files import sync_folder


@dataclass(frozen=True, kw_only=True)
class SharedFiles:
    """A .bin and an .idx to be filled.

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
        (code,) = (code for code, known in _TYPE_OF_CODE.items() if known == self.dtype.newbyteorder("<"))
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
