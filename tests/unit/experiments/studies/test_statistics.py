"""The tests of a study against scipy's, against hand numbers, and in what they let one say."""

import itertools
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from scipy import stats

from roberta_plugin.experiments.studies.statistics import compare, conclusions

APART = {"a": [1.0, 1.2], "b": [5.0, 5.3], "c": [5.1, 5.2]}
FAR = {"a": [1.0, 1.2], "b": [41.1, 41.4], "c": [41.1, 41.2]}
ALIKE = {"a": [1.0, 2.0, 3.0], "b": [1.5, 2.5, 2.0]}


def test_the_noise_is_that_within_variants():
    deviations = {"a": 0.2 / 2**0.5, "b": 0.3 / 2**0.5, "c": 0.1 / 2**0.5}
    assert compare(APART).standard_deviations == pytest.approx(deviations)


def exact_p(samples, statistic):
    """In fractions: the share of all arrangements whose statistic is as large."""

    def arrangements(left, sizes):
        if not sizes:
            yield []
        for chosen in itertools.combinations(range(len(left)), sizes[0] if sizes else 0):
            rest = [value for i, value in enumerate(left) if i not in chosen]
            for others in arrangements(rest, sizes[1:]) if sizes else ():
                yield [[left[i] for i in chosen], *others]

    found = [statistic(parts) for parts in arrangements(list(chain(*samples)), [len(sample) for sample in samples])]
    observed = statistic(samples)
    return sum(one >= observed for one in found) / len(found)


def test_accuracies_that_tie_in_fractions_tie_in_the_permutation_test():
    """Accuracies are multiples of 1 / 872 here; sums of their floats differ in the last digit where fractions do not."""

    def mean(values):
        return Fraction(sum(values), len(values))

    def between(parts):
        grand = mean(list(chain(*parts)))
        return sum(len(part) * (mean(part) - grand) ** 2 for part in parts)

    rng = np.random.default_rng(0)
    for _ in range(6):
        samples = [rng.integers(670, 680, size).tolist() for size in rng.integers(3, 5, 2)]
        found = compare({str(i): [100 * right / 872 for right in sample] for i, sample in enumerate(samples)})
        assert found.p_all == pytest.approx(exact_p(samples, between)), samples


def test_the_permutation_test_counts_every_arrangement():
    """Of two variants, 2 of the 6 are as extreme. Three variants in order: 3! of the 6! / (2! 2! 2!) = 90 arrangements keep the pairs together."""
    assert compare({"a": [1.0, 2.0], "b": [5.0, 6.0]}).p_all == pytest.approx(2 / 6)
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
        assert (pair.low, pair.high, pair.p) == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert pair.exceeds_noise == (expected[2] < 0.05)


def test_two_variants_are_told_by_welchs_test():
    (pair,) = compare({name: UNEQUAL[name] for name in "ab"}).pairs
    assert pair.p == pytest.approx(stats.ttest_ind(UNEQUAL["a"], UNEQUAL["b"], equal_var=False).pvalue)


def sentences(values, *, reference="a", better="larger", unit="points"):
    return conclusions("x", compare(values), reference=reference, better=better, unit=unit)


def test_one_wild_variant_does_not_blind_the_others():
    """The first published study of masks: pooled over raw perplexities, static - dynamic had p = 1."""
    raw = {"one-mask": [241862.74, 188478.79], "static": [1476.07, 1439.05], "dynamic": [1234.83, 1222.06]}
    bits = {name: list(np.log2(values)) for name, values in raw.items()}
    assert stats.tukey_hsd(*raw.values()).pvalue[1, 2] > 0.999
    assert compare(bits).pairs[2].p == pytest.approx(0.0398, abs=1e-3)
    assert (
        "dynamic is better than static by 0.247 bits per token"
        in sentences(bits, reference="static", better="smaller", unit="bits per token")[1]
    )


def test_what_exceeds_the_noise_is_told_against_the_reference():
    """b and c do not differ; intervals turn with the sign."""
    by_reference = {
        name: "{} is worse than {} by 40.1 points (95 % interval 38.9 to 41.4, p = 0.00012); {} is worse than {} "
        "by 40.1 points (95 % interval 39.1 to 41, p = 0.00022).".format(*variants)
        for name, variants in {"a": "baca", "b": "abac"}.items()
    }
    for reference, better in (("a", "smaller"), ("b", "larger")):
        assert sentences(FAR, reference=reference, better=better) == [
            "x: the standard deviation between seeds is 0.141 (a), 0.212 (b), 0.0707 (c) points. The permutation test "
            "of all variants together gives p = 0.2.",
            "Differences that exceed the seeds' noise (Games-Howell over 3 pairs, p < 0.05): "
            + by_reference[reference],
        ]


def test_differences_within_the_noise_are_called_so():
    assert sentences(ALIKE)[1] == (
        "No difference between two variants exceeds the seeds' noise (Games-Howell over 1 pair, p < 0.05)."
    )


def test_one_seed_and_equal_seeds_allow_no_statement():
    one = compare({"a": [1.0], "b": [2.0]})
    assert not one.standard_deviations and one.p_all is None and one.pairs[0].p is None
    for values in ({"a": [1.0], "b": [2.0]}, {"a": [1.0, 1.1], "b": []}):  # b: a variant whose runs failed
        assert sentences(values) == ["x: noise can be estimated once two variants have the values of two seeds each."]
    equal = {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert compare(equal).pairs[0].p is None
    assert np.std([92.1] * 3) > 0, "rounding alone"
    assert compare({"a": [92.1] * 3, "b": [92.1] * 3}).standard_deviations == {"a": 0, "b": 0}
    assert "no noise to compare with" in sentences(equal)[0]
