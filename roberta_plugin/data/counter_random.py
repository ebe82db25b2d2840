"""Random bits by counting: a pure function of (key, position), with no state to carry or to restore.

Used by every stage of the flow in `roberta_plugin/data/__init__.py` that draws per token. Given a block's key, any
process can draw the bits of any position in any order. Only integer operations are used, so every device gives the
same bits.

Example: masking of block 7 in pass 2 of a run with seed 1; the bits of positions 0 to 3 do not depend on T.

    keys = make_keys(1, 2, indices=np.array([7]))     # (1,)
    bits32(keys, 6)[:, :4] == bits32(keys, 4)         # (1, 4), all True
    is_masked = bits32(keys, 6) < 0.15 * 2**32        # (1, 6), 15 % True on average

The n-th output of SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
figure 14) with the state `key` is finalize(key + n * GAMMA); the finalizer is Stafford's variant 13 given there.

Shapes: B blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, odd
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def finalize(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each word, in place: a bijection in which every input bit moves every output bit."""
    words ^= words >> _30
    words *= _FIRST
    words ^= words >> _27
    words *= _SECOND
    words ^= words >> _31
    return words


def make_keys(*numbers: int, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One key (B,) for each of `indices` (B,), derived from the index and the shared `numbers`."""
    shared = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        shared = _absorb(shared, np.array([number % 2**64], dtype=np.uint64))
    return _absorb(np.broadcast_to(shared, indices.shape).copy(), indices.astype(np.uint64))


def add_to_keys(keys: NDArray[np.uint64], numbers: Iterable[int] | NDArray[np.int64]) -> NDArray[np.uint64]:
    """New keys (B,), each derived from its old key (B,) and its own number (B,)."""
    return _absorb(keys.copy(), np.asarray(numbers, dtype=np.int64).astype(np.uint64))


def _absorb(state: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state += GAMMA
    state ^= finalize(words + GAMMA)
    return finalize(state)


def bits64(keys: NDArray[np.uint64], positions: NDArray[np.integer]) -> NDArray[np.uint64]:
    """64 random bits for each pair of broadcast `keys` and `positions`: word number `position` of the key's stream."""
    words = (positions.astype(np.uint64) + np.uint64(1)) * GAMMA
    return finalize(words + keys)


def bits32(keys: NDArray[np.uint64], num_positions: int) -> NDArray[np.uint32]:
    """32 random bits (B, T) for positions 0 to T - 1: two positions share a word, the even one has its low half."""
    words = bits64(keys[:, None], np.arange((num_positions + 1) // 2, dtype=np.uint64))  # (B, 1) -> (B, T/2)
    return words.astype("<u8", copy=False).view("<u4")[:, :num_positions]
