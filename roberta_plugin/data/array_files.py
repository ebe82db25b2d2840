"""Arrays in files that may be larger than memory: read in windows, or indexed through a memory map.

Used by the flow in `roberta_plugin/data/__init__.py` for every array that may be as long as a corpus.

Shapes: n elements.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TAKEN_AT_ONCE = 512
_MAP_WORTH_RELEASING = 2**28  # bytes
_is_releasing = True


class ArrayOnDisk:
    """An array in a file. A slice is read from disk on each access; nothing is cached.

    Example: `ArrayOnDisk("train.bin", np.dtype("<u2"), 0, 1000)[10:20]` reads 20 bytes, from byte 20.
    """

    def __init__(self, path: str, dtype: np.dtype[Any], offset: int, length: int) -> None:
        self._path, self._dtype, self._offset, self._length = path, dtype, offset, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, window: slice) -> NDArray[Any]:
        first, stop, step = window.indices(self._length)
        assert step == 1
        offset = self._offset + first * self._dtype.itemsize
        return np.fromfile(self._path, dtype=self._dtype, count=max(0, stop - first), offset=offset)


@contextmanager
def keeping_pages() -> Iterator[None]:
    """While entered, pages of the array stay mapped: to map each of them a hundred times takes minutes."""
    global _is_releasing
    _is_releasing = False
    try:
        yield
    finally:
        _is_releasing = True


def take_mapped(values: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
    """`values[indices]` of an array that may lie in a mapped file (n,).

    The kernel maps 16 pages for each page touched, so some thousands of scattered elements would make a gigabyte
    resident. Pages of large maps are therefore released regularly; they stay in the page cache.
    """
    if not _is_releasing:
        return values[indices]
    mapped: Any = values
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    if len(indices) < _TAKEN_AT_ONCE or values.nbytes < _MAP_WORTH_RELEASING or not isinstance(mapped, mmap.mmap):
        return values[indices]
    parts = []
    for start in range(0, len(indices), _TAKEN_AT_ONCE):
        parts.append(values[indices[start : start + _TAKEN_AT_ONCE]])
        _release(mapped)
    return np.concatenate(parts)


def _release(mapped: mmap.mmap) -> None:
    mapped.madvise(mmap.MADV_DONTNEED)
