"""The tests of a study against scipy's, against hand numbers, and in what they let one say."""

import itertools
import operator
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from scipy import stats

from roberta_plugin.experiments.studies.statistics import compare, conclusions, pooled_deviation, smallest_p

APART = {"a": [1.0, 1.2], "b": [5.0, 5.3], "c": [5.1, 5.2]}
FAR = {"a": [1.0, 1.2], "b": [41.1, 41.4], "c": [41.1, 41.2]}
ALIKE = {"a": [1.0, 2.0, 3.0], "b": [1.5, 2.5, 2.0]}


def test_the_noise_is_that_within_variants():
    assert pooled_deviation([np.array([1.0, 3.0]), np.array([5.0, 5.0])]) == pytest.approx(1.0)
    assert compare(APART).spreads == pytest.approx({"a": 0.2 / 2**0.5, "b": 0.3 / 2**0.5, "c": 0.1 / 2**0.5})


def test_the_least_p_counts_the_ways_to_divide_the_seeds():
    assert smallest_p(2, 2) == pytest.approx(2 / 6)
    assert smallest_p(4, 4) == pytest.approx(2 / 70)
    assert smallest_p(5, 5) == pytest.approx(2 / 252)
    assert compare(APART).smallest_p == pytest.approx(1 / 3)


def test_two_seeds_that_are_far_apart_reach_the_least_p():
    pair = compare({"a": [1.0, 1.1], "b": [9.0, 9.1]}).pairs[0]
    assert pair.p_permutation == pytest.approx(1 / 3)
    assert pair.difference == pytest.approx(-8.0)


def test_the_permutation_test_of_a_pair_counts_every_arrangement():
    """By hand: of all ways to choose 3 of the 6 values, those whose difference of means is as large."""
    a, b = [1.0, 2.0, 4.0], [3.0, 6.0, 9.0]
    observed = abs(np.mean(a) - np.mean(b))
    values = a + b
    extreme = 0
    arrangements = list(itertools.combinations(range(6), 3))
    for chosen in arrangements:
        first = [values[i] for i in chosen]
        second = [values[i] for i in range(6) if i not in chosen]
        extreme += abs(np.mean(first) - np.mean(second)) >= observed - 1e-12
    assert compare({"a": a, "b": b}).pairs[0].p_permutation == pytest.approx(extreme / len(arrangements))


def exact_p(samples, statistic, *, two_sided):
    """In fractions: the share of all arrangements whose statistic is as large, or twice that of the smaller side."""

    def arrangements(left, sizes):
        if not sizes:
            yield []
        for chosen in itertools.combinations(range(len(left)), sizes[0] if sizes else 0):
            rest = [value for i, value in enumerate(left) if i not in chosen]
            for others in arrangements(rest, sizes[1:]) if sizes else ():
                yield [[left[i] for i in chosen], *others]

    found = [statistic(parts) for parts in arrangements(list(chain(*samples)), [len(sample) for sample in samples])]
    observed = statistic(samples)
    larger, smaller = (sum(f(one, observed) for one in found) for f in (operator.ge, operator.le))
    return min(1.0, 2 * min(larger, smaller) / len(found)) if two_sided else larger / len(found)


def test_accuracies_that_tie_in_fractions_tie_in_the_permutation_tests():
    """Accuracies are multiples of 1 / 872 here; sums of their floats differ in the last digit where fractions do not."""

    def mean(values):
        return Fraction(sum(values), len(values))

    def between(parts):
        grand = mean(list(chain(*parts)))
        return sum(len(part) * (mean(part) - grand) ** 2 for part in parts)

    rng = np.random.default_rng(0)
    for _ in range(12):
        samples = [rng.integers(670, 680, size).tolist() for size in rng.integers(3, 5, 2)]
        found = compare({str(i): [100 * right / 872 for right in sample] for i, sample in enumerate(samples)})
        expected = exact_p(samples, lambda parts: mean(parts[0]) - mean(parts[1]), two_sided=True)
        assert found.pairs[0].p_permutation == pytest.approx(expected), samples
        assert found.p_all == pytest.approx(exact_p(samples, between, two_sided=False)), samples


def test_the_test_of_all_variants_can_be_significant_with_two_seeds():
    """Three variants in order: 3! of the 6! / (2! 2! 2!) = 90 arrangements keep the pairs together."""
    found = compare({"a": [1.0, 1.1], "b": [5.0, 5.1], "c": [9.0, 9.1]})
    assert found.p_all == pytest.approx(6 / 90)
    four = compare({"a": [1.0, 1.1], "b": [5.0, 5.1], "c": [9.0, 9.1], "d": [13.0, 13.1]})
    assert four.p_all == pytest.approx(24 / 2520)


# The samples of the example in scipy's documentation of tukey_hsd.
UNEQUAL = {
    "a": [24.5, 23.5, 26.4, 27.1, 29.9],
    "b": [28.4, 34.2, 29.5, 32.2, 30.1],
    "c": [26.1, 28.3, 24.3, 26.2, 27.8],
}


def games_howell(a, b, *, num_samples):
    """The test in plain float64: Welch's degrees of freedom and the studentized range (Games and Howell 1976)."""
    (mean_a, of_a), (mean_b, of_b) = ((sum(x) / len(x), sample_variance(x) / len(x)) for x in (a, b))
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    error = ((of_a + of_b) / 2) ** 0.5
    p = stats.studentized_range.sf(abs(mean_a - mean_b) / error, num_samples, freedom)
    half = error * stats.studentized_range.ppf(0.95, num_samples, freedom)
    return mean_a - mean_b - half, mean_a - mean_b + half, p


def sample_variance(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


@pytest.mark.parametrize(
    "samples", [APART, UNEQUAL, {**ALIKE, "wide": [-50.0, 80.0]}], ids=["apart", "scipy's", "wide"]
)
def test_pairs_are_those_of_games_and_howell(samples):
    pairs = compare(samples).pairs
    assert [(pair.first, pair.second) for pair in pairs] == list(itertools.combinations(samples, 2))
    for pair in pairs:
        expected = games_howell(samples[pair.first], samples[pair.second], num_samples=len(samples))
        assert (pair.low, pair.high, pair.p_games_howell) == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert pair.exceeds_noise == (expected[2] < 0.05)


def test_two_variants_are_told_by_welchs_test():
    (pair,) = compare({name: UNEQUAL[name] for name in "ab"}).pairs
    assert pair.p_games_howell == pytest.approx(stats.ttest_ind(UNEQUAL["a"], UNEQUAL["b"], equal_var=False).pvalue)


def test_one_wild_variant_does_not_blind_the_others_and_is_named():
    """The first published study of masks: pooled over raw perplexities, static - dynamic had p = 1."""
    raw = {"one-mask": [241862.74, 188478.79], "static": [1476.07, 1439.05], "dynamic": [1234.83, 1222.06]}
    bits = {name: list(np.log2(values)) for name, values in raw.items()}
    assert stats.tukey_hsd(*raw.values()).pvalue[1, 2] > 0.999
    found = compare(bits)
    assert found.pairs[2].p_games_howell == pytest.approx(0.0398, abs=1e-3) and found.too_wide.keys() == {"one-mask"}
    sentences = conclusions("ppl", bits, found, reference="static", better="smaller", unit="bits per token")
    assert any(line.startswith("Warning: the seeds of one-mask scatter more") for line in sentences)
    assert any("dynamic is better than static by 0.247 bits per token" in line for line in sentences)
    assert not any("Warning" in line for line in say(ALIKE)) and not compare(ALIKE).too_wide


def say(values, *, reference="a", better="larger"):
    return conclusions("x", values, compare(values), reference=reference, better=better, unit="points")


def test_what_exceeds_the_noise_is_said_against_the_reference():
    first, beyond, limits = say(FAR, better="smaller")
    assert "s = 0.141 (a), 0.212 (b), 0.0707 (c) points" in first
    assert "b is worse than a by 40.1 points (95 % interval" in beyond
    assert "c is worse than a" in beyond
    assert "than c" not in beyond
    assert "With 2 seeds the exact permutation test of a single pair cannot give less than p = 0.33" in limits


def test_intervals_are_turned_with_the_sign():
    """a - b = -40.15: `a is worse than b by 40.1`, from the smaller to the larger distance."""
    (beyond,) = [line for line in say(FAR, reference="b") if "Beyond" in line]
    pair = compare(FAR).pairs[0]
    assert pair.low < pair.difference < pair.high < 0
    assert f"a is worse than b by 40.1 points (95 % interval {-pair.high:.3g} to {-pair.low:.3g}" in beyond


def test_differences_within_the_noise_are_called_so():
    sentences = say(ALIKE)
    assert any(line.startswith("No difference between two variants exceeds the seeds' noise") for line in sentences)


def test_one_seed_and_equal_seeds_allow_no_statement():
    one = {"a": [1.0], "b": [2.0]}
    assert not compare(one).spreads
    assert compare(one).p_all is None
    assert compare(one).pairs[0].p_permutation is None
    two_variants = "nothing can be said about noise before two variants have the values of two seeds each"
    assert two_variants in say(one)[0]
    assert two_variants in say({"a": [1.0, 1.1], "b": []})[0], "a variant whose runs failed"
    equal = {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert compare(equal).pairs[0].p_games_howell is None
    assert np.std([92.1] * 3) > 0, "rounding alone"
    assert compare({"a": [92.1] * 3, "b": [92.1] * 3}).spreads == {"a": 0, "b": 0}
    assert "no noise to compare with" in say(equal)[0]


def test_the_caveat_counts_the_seeds_of_the_variants_that_are_tested():
    *_, caveat = say({"a": [1.0, 1.1, 1.2, 1.3], "b": [2.0, 2.2], "c": [3.0, 3.1, 3.3], "d": [5.0]})
    assert caveat.startswith("With 2 to 4 seeds the exact permutation test")


def test_five_seeds_need_no_caveat():
    rng = np.random.default_rng(0)
    values = {"a": list(rng.normal(0, 1, 5)), "b": list(rng.normal(9, 1, 5))}
    found = compare(values)
    assert found.pairs[0].p_permutation == pytest.approx(2 / 252)
    assert not any("cannot give less" in line for line in say(values))
