"""Random permutations computed element by element, without an array of their length.

Used by `block_order` in the flow of `roberta_plugin/data/__init__.py`. A Feistel network (Luby & Rackoff 1988) in its
form for any size (Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002): a number below `size` is
written as two digits, and each round adds a random function of one digit to the other. The few results that are not
below `size` go through the network again until they are.

Example: an epoch over five blocks; asking for positions 3 and 4 alone gives the same two elements.

    key = make_keys(1, indices=np.array([0]))               # (1,)
    permute(np.arange(5), size=5, keys=key)                 # -> each of 0, 1, 2, 3, 4 once
    permute(np.array([3, 4]), size=5, keys=key)             # -> the last two of them

Shapes: n elements.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.counter_random import bits64
from roberta_plugin.data.rounding import ceil_div

# With few values per digit, a round has few possible functions, so mixing takes more rounds.
_ROUNDS, _ROUNDS_OF_SMALL, _SMALL = 12, 36, 64
_HALF = np.uint64(32)


def permute(positions: NDArray[np.int64], *, size: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Element `positions` (n,) of the permutations of 0 to `size` - 1 that are chosen by `keys` (n,) or (1,).

    Raises:
        ValueError: if a position is not in 0 to `size` - 1.
    """
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < size:
        raise ValueError(
            f"A permutation of {size} elements has the positions 0 to {size - 1}, got "
            f"{positions.min()} to {positions.max()}."
        )
    base = math.isqrt(max(size - 1, 0)) + 1  # at least the square root, so two digits suffice
    found = _through_network(positions.astype(np.uint64), size, base, keys)
    outside = np.flatnonzero(found >= size)
    while len(outside):
        keys_outside = keys if len(keys) == 1 else keys[outside]
        again = _through_network(found[outside], size, base, keys_outside)
        found[outside] = again
        outside = outside[again >= size]
    return found.astype(np.int64)


def _through_network(numbers: NDArray[np.uint64], size: int, base: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of the numbers below `base` * ceil(size / base); (n,) -> (n,)."""
    low_base, high_base = np.uint64(base), np.uint64(ceil_div(size, base))
    high, low = np.divmod(numbers, low_base)
    for number in range(0, _ROUNDS if size >= _SMALL else _ROUNDS_OF_SMALL, 2):
        low = _add(low, high, low_base, keys, number)
        high = _add(high, low, high_base, keys, number + 1)
    return high * low_base + low


def _add(
    digit: NDArray[np.uint64], other: NDArray[np.uint64], base: np.uint64, keys: NDArray[np.uint64], number: int
) -> NDArray[np.uint64]:
    """`digit` plus a random function of the `other` digit in round `number`, modulo `base`."""
    bits = bits64(keys, other | np.uint64(number << 32))
    bits >>= _HALF
    bits *= base
    bits >>= _HALF  # uniform below base
    bits += digit
    bits -= base * (bits >= base)
    return bits
