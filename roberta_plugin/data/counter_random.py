"""Random bits and permutations by counting: pure functions of (key, position), with no state to carry or to restore.

Used by every stage of the flow in `roberta_plugin/data/__init__.py` that draws per token. Given a block's key, any
process can draw the bits of any position in any order. Only integer operations are used, so every device gives the
same bits.

Example: masking of block 7 in pass 2 of a run with seed 1; the bits of positions 0 to 3 do not depend on T.

    keys = make_keys(1, 2, indices=np.array([7]))     # (1,)
    bits32(keys, 6)[:, :4] == bits32(keys, 4)         # (1, 4), all True
    is_masked = bits32(keys, 6) < 0.15 * 2**32        # (1, 6), 15 % True on average

The n-th output of SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
figure 14) with the state `key` is finalize(key + n * GAMMA); the finalizer is Stafford's variant 13 given there.

Permutations are computed element by element, without an array of their length, by a Feistel network (Luby & Rackoff
1988) in its form for any size (Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002): a number below
`size` is written as two digits, and each round adds a random function of one digit to the other. The few results that
are not below `size` go through the network again until they are.

Example: an epoch over five blocks; asking for positions 3 and 4 alone gives the same two elements.

    key = make_keys(1, indices=np.array([0]))               # (1,)
    permute(np.arange(5), size=5, keys=key)                 # -> each of 0, 1, 2, 3, 4 once
    permute(np.array([3, 4]), size=5, keys=key)             # -> the last two of them

Shapes: B blocks, T positions, n elements.
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


# With few values per digit, a round has few possible functions, so mixing takes more rounds.
_ROUNDS, _ROUNDS_OF_SMALL, _SMALL = 12, 36, 64
_HALF = np.uint64(32)


def permute(
    positions: NDArray[np.int64], *, size: int | NDArray[np.int64], keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Element `positions` (n,) of the permutations of 0 to `size` - 1, (n,) or one number, that `keys` (n,) choose."""
    assert ((positions >= 0) & (positions < size)).all(), "a position outside of the permutation"
    sizes, keys = np.broadcast_to(size, positions.shape), np.broadcast_to(keys, positions.shape)
    elements = np.empty(len(positions), dtype=np.int64)
    is_small = sizes < _SMALL
    for rounds, where in ((_ROUNDS, np.flatnonzero(~is_small)), (_ROUNDS_OF_SMALL, np.flatnonzero(is_small))):
        elements[where] = positions[where]
        while len(where):
            elements[where] = _through_network(elements[where], sizes[where], keys[where], rounds)
            where = where[elements[where] >= sizes[where]]
    return elements


def _through_network(
    numbers: NDArray[np.int64], sizes: NDArray[np.int64], keys: NDArray[np.uint64], rounds: int
) -> NDArray[np.int64]:
    """A bijection of the numbers below low_base * high_base, which is the size or little more; (n,) -> (n,)."""
    low_bases = np.sqrt(sizes - 1).astype(np.uint64) + np.uint64(1)  # about the square root, so two digits suffice
    high_bases = (sizes.astype(np.uint64) + low_bases - np.uint64(1)) // low_bases
    high, low = np.divmod(numbers.astype(np.uint64), low_bases)
    for number in range(0, rounds, 2):
        low = _add(low, high, low_bases, keys, number)
        high = _add(high, low, high_bases, keys, number + 1)
    mixed: NDArray[np.int64] = (high * low_bases + low).astype(np.int64)
    return mixed


def _add(
    digit: NDArray[np.uint64],
    other: NDArray[np.uint64],
    bases: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    number: int,
) -> NDArray[np.uint64]:
    """`digit` plus a random function of the `other` one, of round `number`, modulo `bases`; all (n,)."""
    bits = bits64(keys, other | np.uint64(number << 32))
    bits >>= _HALF
    bits *= bases
    bits >>= _HALF  # uniform below the base
    bits += digit
    bits -= bases * (bits >= bases)
    return bits
