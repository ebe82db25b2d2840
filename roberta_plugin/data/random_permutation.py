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

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.counter_random import bits64

# With few values per digit, a round has few possible functions, so mixing takes more rounds.
_ROUNDS, _ROUNDS_OF_SMALL, _SMALL = 12, 36, 64
_HALF = np.uint64(32)


def permute(
    positions: NDArray[np.int64], *, size: int | NDArray[np.int64], keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Element `positions` (n,) of the permutations of 0 to `size` - 1, (n,) or one number, that `keys` (n,) choose.

    Raises:
        ValueError: if a position is not in 0 to `size` - 1.
    """
    if len(positions) and not ((positions >= 0) & (positions < size)).all():
        raise ValueError(
            f"A permutation of {size} elements has the positions 0 to {int(np.max(size)) - 1}, got "
            f"{positions.min()} to {positions.max()}."
        )
    sizes, keys = np.broadcast_to(size, positions.shape), np.broadcast_to(keys, positions.shape)
    found = np.empty(len(positions), dtype=np.int64)
    is_small = sizes < _SMALL
    for rounds, where in ((_ROUNDS, np.flatnonzero(~is_small)), (_ROUNDS_OF_SMALL, np.flatnonzero(is_small))):
        found[where] = positions[where]
        while len(where):
            found[where] = _through_network(found[where], sizes[where], keys[where], rounds)
            where = where[found[where] >= sizes[where]]
    return found


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
    found: NDArray[np.int64] = (high * low_bases + low).astype(np.int64)
    return found


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
