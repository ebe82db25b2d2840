"""Statistics of a study's seeds, and its report."""

import itertools
import math
import warnings
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from scipy import stats

from roberta_plugin.experiments.studies.report import show, write_report
from roberta_plugin.experiments.studies.settings import read_study
from roberta_plugin.experiments.studies.statistics import compare, conclusions
from tests.tiny_study import write_study

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
}


def test_pairs_are_those_of_games_and_howell():
    """As scipy has them, of unequal numbers of seeds; pingouin's p of further samples: tests/parity."""
    samples = {"a": UNEQUAL["a"], "b": UNEQUAL["b"][:3], "wide": [-50.0, 80.0]}
    pairs = compare(samples).pairs
    assert [(pair.first, pair.second) for pair in pairs] == list(itertools.combinations(samples, 2))
    theirs = stats.tukey_hsd(*samples.values(), equal_var=False)
    interval = theirs.confidence_interval()
    for pair, where in zip(pairs, itertools.combinations(range(3), 2), strict=True):
        expected = (interval.low[where], interval.high[where], theirs.pvalue[where])
        assert (pair.low, pair.high, pair.p) == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert pair.exceeds_noise == (expected[2] < 0.05)


def test_two_variants_are_told_by_welchs_test():
    (pair,) = compare(UNEQUAL).pairs
    assert pair.p == pytest.approx(stats.ttest_ind(UNEQUAL["a"], UNEQUAL["b"], equal_var=False).pvalue)


def sentences(values, *, reference="a", better="larger", unit="points"):
    return conclusions("x", compare(values), reference=reference, better=better, unit=unit)


def test_one_wild_variant_does_not_blind_the_others():
    """The first published study of masks: pooled over raw perplexities, static - dynamic had p = 1."""
    raw = {"one-mask": [241862.74, 188478.79], "static": [1476.07, 1439.05], "dynamic": [1234.83, 1222.06]}
    bits = {name: list(np.log2(values)) for name, values in raw.items()}
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


REPORT = """\
# A tiny study

3 variants x 2 seeds at equal tokens; 6 of 6 pretrainings done. Each entry: median (smallest to largest), n seeds of \
pretraining; for a fine-tuning task the value of a pretraining is the median of its seeds of fine-tuning. The paper's \
numbers are those of its own models and data.

| variant | held-out (perplexity) | sentiment (accuracy) | paper |
| --- | --- | --- | --- |
| dynamic | - | 80.5 (80.0 to 81.0), n = 2 | 92.9 |
| fixed | 25.0 (20.0 to 30.0), n = 2 | 90.5 (90.0 to 91.0), n = 2 | 92.5 |
| own | - | 92.5 (92.5 to 92.5), n = 1 |  |
| unigram baseline of the training text | 22.6 |  |  |
| previous-token baseline of the training text | 16.0 |  |  |
| both-neighbors baseline of the training text | 11.3 |  |  |

## What exceeds the seeds' noise

- held-out: fixed has a loss of 4.616 bits per token (ppl 24.52), not below the unigram baseline (4.500, \
ppl 22.63): so far it has learned token frequencies at most.
- held-out: noise can be estimated once two variants have the values of two seeds each.
- sentiment: the standard deviation between seeds is 0.707 (dynamic), 0.707 (fixed) points. The permutation test of \
all variants together gives p = 0.333.
- Differences that exceed the seeds' noise (Games-Howell over 1 pair, p < 0.05): fixed is better than dynamic by \
10 points (95 % interval 6.96 to 13, p = 0.005).

| probe | pair | difference of means | 95 % interval | p (Games-Howell) | paper's difference |
| --- | --- | --- | --- | --- | --- |
| sentiment (points) | dynamic - fixed | -10 | -13 to -6.96 | 0.005 | +0.4 |
| sentiment (points) | dynamic - own | -12 | - | - |  |
| sentiment (points) | fixed - own | -2 | - | - |  |

## Loss

![loss curves](curves.png)

## Each pretraining

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| dynamic | 9 | 100 | 900 | 1 | 0.001 | 1e+09 |
| fixed | 9 | 100 | 900 | 1 | 0.001 | 1e+09 |
| own | 9 | 100 | 900 | ? | 0.001 | 1e+09 |

All pretrainings together: 6e+09 FLOPs. Data: bin/train.bin (9 bytes).

## Failed; the same command tries them again

- runs/a: out of memory
"""


@pytest.fixture
def study(tmp_path):
    variants = {"fixed": {"paper": "table1/static"}, "own": None, "dynamic": {"paper": "table1/dynamic"}}
    tuning = {"kind": "fine-tuning", "task": "SST-2", "raw": "glue", "tokenizer": "tokenizer", "max-length": "64"}
    probes = {"held-out": {"kind": "perplexity"}, "sentiment": tuning}
    return read_study(write_study(tmp_path / "study.yaml", data=tmp_path, variants=variants, probes=probes))


def values(*numbers, **more):
    return {str(seed): {"value": value, **more} for seed, value in enumerate(numbers, start=1)}


def test_a_report_as_a_whole_is_the_same_each_time(study, tmp_path):
    """And matplotlib warns of nothing, also where a loss is not a number."""
    facts = {"num_updates": 9, "tokens_per_update": 100.0, "tokens": 900, "lr": 1e-3, "flops": 1e9}
    facts |= {"pretrainings_done": 2}
    results = {
        "variants": {each.name: {**facts, "epochs": None if each.name == "own" else 1.0} for each in study.variants},
        "values": {
            "held-out": {"fixed": values(20.04, 30.0)},
            "sentiment": {
                "fixed": values(90.0, 91.0, metric="accuracy"),
                "own": values(92.5),
                "dynamic": values(80.0, 81.0),
            },
        },
        "baselines": {"held-out": {"unigram_loss": 4.5, "bigram_loss": 4.0, "neighbors_loss": 3.5}},
        "seeds": ["1", "2"],
        "budget": {"equal": "tokens"},
        "data": {"bin/train.bin": "9 bytes", "bin/train.idx": "9 bytes"},
        "flops": 6e9,
        "curves": {"variant-fixed/seed-1": {"updates": [1, 2], "values": [12.0, math.nan]}},
        "failures": {"runs/a": "out of memory"},
    }
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            assert write_report(study, results, tmp_path / folder)[1] == REPORT
    for name in ("report.md", "results.json", "curves.png"):
        first, again = ((tmp_path / folder / name).read_bytes() for folder in ("first", "again"))
        assert first == again, name


def test_a_cell_is_median_range_and_number():
    assert show([30.0, 20.04, 25.0]) == "25.0 (20.0 to 30.0), n = 3"
    assert show([1.23456]) == "1.235 (1.235 to 1.235), n = 1"
