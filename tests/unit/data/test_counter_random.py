"""Bits and permutations by counting: the same whoever draws them, and as good as random.

Statistics are given in standard deviations from what is random; seeds are fixed, so tests do not flicker.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.counter_random import GAMMA, add_to_keys, bits32, bits64, finalize, make_keys, permute
from tests.refusals import refused


def test_it_is_splitmix64():
    """First outputs of the reference implementation (Vigna, splitmix64.c) for the seed 1234567."""
    state = np.array([1234567], dtype=np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    expected += [4593380528125082431, 16408922859458223821]
    assert bits64(state, np.arange(5)).tolist() == expected


def test_the_finalizer_is_a_bijection_that_moves_half_of_the_bits():
    words = np.arange(4096, dtype=np.uint64)
    mixed = finalize(words.copy())
    assert len(np.unique(mixed)) == 4096
    for bit in range(64):
        flipped = finalize(words ^ np.uint64(1 << bit))
        changed = np.bitwise_count(mixed ^ flipped).mean()
        assert 31 < changed < 33, f"bit {bit} moves {changed} bits"


def test_keys_of_neighbouring_seeds_passes_and_blocks_have_nothing_in_common():
    indices = np.arange(200)
    numbers = itertools.product(range(20), range(20))
    keys = [add_to_keys(make_keys(seed, 0, indices=indices), np.full(200, number)) for seed, number in numbers]
    assert len(np.unique(np.concatenate(keys))) == 200 * 400
    ones = np.unpackbits(np.concatenate(keys).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.002
    for first, second in itertools.pairwise(keys):
        assert 28 < np.bitwise_count(first ^ second).mean() < 36
    # fairseq's seeds of blocks take 34,415 values for a million blocks
    assert len(np.unique(make_keys(1, 1, indices=np.arange(1_000_000)))) == 1_000_000


@pytest.mark.parametrize("num_positions", [1, 2, 7, 512])
def test_a_position_has_the_same_bits_in_any_width(num_positions):
    keys = make_keys(3, indices=np.array([5, 6, 7]))
    wide = bits32(keys, 600)
    assert np.array_equal(bits32(keys, num_positions), wide[:, :num_positions])
    assert np.array_equal(bits32(keys[1:2], num_positions), wide[1:2, :num_positions])


def test_draws_are_uniform_and_positions_uncorrelated():
    draws = bits32(make_keys(9, indices=np.arange(4000)), 256) / 2**32
    counts = np.histogram(draws, bins=64, range=(0, 1))[0]
    expected = draws.size / 64
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert 20 < chi_squared < 130  # 63 degrees of freedom
    across = np.corrcoef(draws[:, 0], draws[:, 1])[0, 1], np.corrcoef(draws[:-1, 3], draws[1:, 3])[0, 1]
    assert max(map(abs, across)) < 0.06  # 1 / sqrt(4000) = 0.016


def test_the_key_is_not_changed_by_drawing():
    keys = make_keys(1, indices=np.arange(4))
    before = keys.copy()
    bits32(keys, 9), bits64(keys, np.arange(4)), add_to_keys(keys, np.arange(4))
    assert np.array_equal(keys, before)
    assert GAMMA % np.uint64(2) == 1


def key(number):
    return make_keys(1, 2, indices=np.array([number]))


def excess(counts, *, degrees_of_freedom):
    """Chi-squared of `counts` that should be equal, in standard deviations from its mean."""
    counts = np.asarray(counts, dtype=np.float64)
    chi_squared = ((counts - counts.mean()) ** 2).sum() / counts.mean()
    return (chi_squared - degrees_of_freedom) / np.sqrt(2 * degrees_of_freedom)


@given(size=st.integers(1, 3000) | st.sampled_from([2**16, 2**16 + 1, 99_999]), number=st.integers(0, 10**6))
@settings(deadline=None)
def test_every_element_comes_exactly_once(size, number):
    assert np.array_equal(np.sort(permute(np.arange(size), size=size, keys=key(number))), np.arange(size))


def test_an_element_is_the_same_alone_and_among_others_of_other_sizes_and_keys():
    rng = np.random.default_rng(0)
    sizes = np.array([1, 5, 63, 64, 101, 10**6, 10**12])[rng.integers(0, 7, 300)]
    positions, numbers = rng.integers(0, sizes), rng.integers(0, 9, 300)
    found = permute(positions, size=sizes, keys=make_keys(1, 2, indices=numbers))
    for position, size, number, element in zip(positions, sizes.tolist(), numbers, found, strict=True):
        assert permute(np.array([position]), size=size, keys=key(number)) == element


@pytest.mark.parametrize("size", [2**26 - 1, 2**26 + 1, 64_600_000, 10**12])
def test_elements_of_large_permutations_are_distinct_and_in_range(size):
    positions = np.concatenate([np.arange(50_000), np.arange(size - 50_000, size)])
    found = permute(positions, size=size, keys=key(1))
    assert found.min() >= 0 and found.max() < size
    assert len(np.unique(found)) == len(found)


def test_all_permutations_of_few_elements_are_equally_frequent():
    keys = make_keys(1, 2, indices=np.arange(60_000))
    found = np.stack([permute(np.full(len(keys), place), size=5, keys=keys) for place in range(5)], axis=1)
    counts = Counter(map(tuple, found.tolist()))
    assert set(counts) == set(itertools.permutations(range(5)))
    assert abs(excess(list(counts.values()), degrees_of_freedom=119)) < 4


@pytest.mark.parametrize("size", [2, 6, 13, 30, 63, 64, 100, 1000])
def test_places_and_pairs_of_places_are_uniform(size):
    keys = make_keys(9, 2, indices=np.arange(20_000))
    places = sorted({0, 1, round(size**0.5), size // 2, size - 1})
    found = {place: permute(np.full(len(keys), place), size=size, keys=keys) for place in places}
    for place, elements in found.items():
        assert abs(excess(np.bincount(elements, minlength=size), degrees_of_freedom=size - 1)) < 4, place
    for first, second in itertools.combinations(places, 2):
        steps = np.bincount((found[second] - found[first]) % size, minlength=size)
        assert steps[0] == 0
        if size > 2:
            assert abs(excess(steps[1:], degrees_of_freedom=size - 2)) < 4, (first, second)


@pytest.mark.parametrize("size", [20_000, 64_600_000])
def test_neither_positions_nor_neighbours_nor_other_keys_tell_anything_about_an_element(size):
    positions = np.arange(20_000)
    first, second = (permute(positions, size=size, keys=key(number)) / size for number in (1, 2))
    uniform = np.sqrt(len(positions))  # correlations of as many independent pairs, times this, are normal
    pairs = {"position": (positions, first), "epoch": (first, second)}
    pairs |= {f"lag {lag}": (first[:-lag], first[lag:]) for lag in (1, 2, 64, 141, 142, 8037)}
    for name, (left, right) in pairs.items():
        assert abs(np.corrcoef(left, right)[0, 1] * uniform) < 4, name
    ascents = int((np.diff(first) > 0).sum())  # their variance is (n + 1) / 12
    assert abs(ascents - (len(first) - 1) / 2) < 4 * np.sqrt((len(first) + 1) / 12)
    squares = np.histogram2d(first[:-1], first[1:], bins=16, range=[[0, 1], [0, 1]])[0].ravel()
    assert abs(excess(squares, degrees_of_freedom=225)) < 4
    thirds = np.bincount((first * size).astype(np.int64) % 8, minlength=8)
    assert excess(thirds, degrees_of_freedom=7) < 4


def test_a_position_outside_is_refused():
    refused("outside of the permutation", permute, np.array([7]), size=7, keys=key(1), error=AssertionError)
