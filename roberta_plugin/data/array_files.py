"""Arrays in files that may be larger than the memory: read window by window, or taken from element by element.

Beside the flow in `roberta_plugin/data/__init__.py`; whatever may be as long as a corpus is read with it.

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
    """An array in a file, of which slices are read when they are asked for; none is kept."""

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
    """While a whole array is taken from, its pages are kept: to map each of them a hundred times takes minutes."""
    global _is_releasing
    _is_releasing = False
    try:
        yield
    finally:
        _is_releasing = True


def take_mapped(values: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
    """`values[indices]` of an array in a mapped file.

    The kernel maps 16 pages or more for each one that is touched, so that some thousands of far-off elements would
    make a gigabyte resident. Pages of large maps are therefore let go now and then; they stay in the page cache.
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
