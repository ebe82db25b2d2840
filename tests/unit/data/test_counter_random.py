"""Bits by counting: the same whoever draws them, and as good as random."""

import itertools

import numpy as np
import pytest

from roberta_plugin.data.counter_random import GAMMA, add_to_keys, bits32, bits64, finalize, make_keys


def test_it_is_splitmix64():
    """First outputs of the reference implementation (Vigna, splitmix64.c) for the seed 1234567."""
    state = np.array([1234567], dtype=np.uint64)
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
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
    keys = [
        add_to_keys(make_keys(seed, 0, indices=indices), np.full(200, number))
        for seed in range(20)
        for number in range(20)
    ]
    assert len(np.unique(np.concatenate(keys))) == 200 * 400
    ones = np.unpackbits(np.concatenate(keys).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.002
    for first, second in itertools.pairwise(keys):
        assert 28 < np.bitwise_count(first ^ second).mean() < 36


def test_a_million_neighbouring_blocks_have_distinct_keys():
    """fairseq's per-block seeds take 34,415 values for a million blocks."""
    keys = make_keys(1, 1, indices=np.arange(1_000_000))
    assert len(np.unique(keys)) == 1_000_000


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
