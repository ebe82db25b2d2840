"""Do variants differ by more than their seeds? Values by seed -> tests, and the sentences that may be concluded.

Every pretraining is one observation; seeds of fine-tuning only make the value of a pretraining steadier (their median).

    every pair              Games and Howell 1976: normal noise whose standard deviation may differ between variants;
                            controls the errors of all pairs at once
    all variants together   permutation test of the sum of squares between variants (Fisher's randomisation), without a
                            model of the noise; exact up to 9,999 arrangements, which are drawn where there are more

Distributions and the permutation test are scipy's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05
_RESAMPLES = 9_999  # where there are more arrangements than that
_DIGITS = 9  # accuracies are multiples of 1 / examples: arrangements often tie, but for the rounding of their sums
Sample = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two variants: `first` minus `second`."""

    first: str
    second: str
    difference: float  # difference of the means
    low: float | None = None  # lower end of the 95 % interval by Games and Howell; None without noise
    high: float | None = None
    p: float | None = None

    @property
    def exceeds_noise(self) -> bool:
        """Whether the test of Games and Howell is significant."""
        return self.p is not None and self.p < LEVEL


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The tests of one probe."""

    standard_deviations: Mapping[str, float]  # between the seeds of each variant that has two or more
    p_all: float | None  # p of the permutation test of all variants together
    pairs: tuple[Pair, ...]


def compare(values: Mapping[str, Sequence[float]]) -> Comparison:
    """Compare variants by the values of their seeds (n >= 1 each); variants without a value are left out."""
    samples = {name: np.asarray(seeds, dtype=np.float64) for name, seeds in values.items() if len(seeds)}
    tested = {name: sample for name, sample in samples.items() if len(sample) > 1}
    by_pair = _games_howell(tested)
    return Comparison(
        standard_deviations={name: standard_deviation(sample) for name, sample in tested.items()},
        p_all=_permutation_test(list(tested.values())) if len(tested) > 1 else None,
        pairs=tuple(
            Pair(first=first, second=second, difference=float(a.mean() - b.mean()), **by_pair.get((first, second), {}))
            for (first, a), (second, b) in combinations(samples.items(), 2)
        ),
    )


def standard_deviation(sample: Sample) -> float:
    """The standard deviation of a sample (n >= 2), with n - 1 degrees of freedom; exactly 0 for equal values."""
    return float(np.std(sample - sample[0], ddof=1))


def _games_howell(samples: Mapping[str, Sample]) -> dict[tuple[str, str], dict[str, float]]:
    """Interval and p of every pair, in the order of `samples`; without the pairs in which neither has noise.

    As scipy's tukey_hsd with equal_var=False, which computes every pair twice, and each variant with itself.
    """
    from scipy.stats import studentized_range

    by_pair = {}
    for (first, a), (second, b) in combinations(samples.items(), 2):
        if not (np.ptp(a) or np.ptp(b)):
            continue
        var_a, var_b = (standard_deviation(sample) ** 2 / len(sample) for sample in (a, b))
        freedom = (var_a + var_b) ** 2 / (var_a**2 / (len(a) - 1) + var_b**2 / (len(b) - 1))  # Welch's
        difference, error = float(a.mean() - b.mean()), ((var_a + var_b) / 2) ** 0.5
        half = error * float(studentized_range.ppf(1 - LEVEL, len(samples), freedom))
        p = float(studentized_range.sf(abs(difference) / error, len(samples), freedom))
        by_pair[first, second] = {"low": difference - half, "high": difference + half, "p": p}
    return by_pair


def _permutation_test(samples: Sequence[Sample]) -> float:
    """p of the sum of squares between samples; exact, or of a fixed sample where there are many arrangements.

    Example:
        [1, 2], [5, 6]  ->  1/3: 2 of the 6 ways to divide the four values are as extreme
    """
    from scipy.stats import permutation_test

    pooled = np.concatenate(samples)
    mean, total = np.mean(pooled), float(np.var(pooled)) * len(pooled) or 1.0
    arrangements = math.factorial(len(pooled)) // math.prod(math.factorial(len(sample)) for sample in samples)
    num_resamples: Any = np.inf if arrangements <= _RESAMPLES else _RESAMPLES

    def between(*arrays: Any, axis: int) -> Any:
        squares = sum(array.shape[axis] * (np.mean(array, axis=axis) - mean) ** 2 for array in arrays)
        return np.round(squares / total, _DIGITS)

    how = {"vectorized": True, "n_resamples": num_resamples, "alternative": "greater"}
    return float(permutation_test(tuple(samples), between, **how, random_state=np.random.default_rng(0)).pvalue)


def conclusions(name: str, comparison: Comparison, *, reference: str, better: str, unit: str) -> list[str]:
    """Sentences on what differs by more than the seeds' noise."""
    deviations = comparison.standard_deviations
    if len(deviations) < 2:
        return [f"{name}: noise can be estimated once two variants have the values of two seeds each."]
    if not any(deviations.values()):
        return [f"{name}: the seeds of each variant give equal values, so there is no noise to compare with."]
    listed = ", ".join(f"{deviation:.3g} ({variant})" for variant, deviation in deviations.items())
    beyond = [pair for pair in comparison.pairs if pair.exceeds_noise]
    described = "; ".join(describe(pair, reference=reference, better=better, unit=unit) for pair in beyond)
    num_pairs = sum(pair.p is not None for pair in comparison.pairs)
    test = f"(Games-Howell over {num_pairs} pair{'s' * (num_pairs > 1)}, p < {LEVEL})"
    return [
        f"{name}: the standard deviation between seeds is {listed} {unit}. The permutation test of all variants "
        f"together gives p = {comparison.p_all:.3g}.",
        f"Differences that exceed the seeds' noise {test}: {described}."
        if beyond
        else f"No difference between two variants exceeds the seeds' noise {test}.",
    ]


def describe(pair: Pair, *, reference: str, better: str, unit: str) -> str:
    """As in `dynamic is better than static by 3.1 points (95 % interval 1.2 to 5, p = 0.01)`; the reference last."""
    assert pair.low is not None
    assert pair.high is not None
    assert pair.p is not None
    first, second, difference = pair.first, pair.second, pair.difference
    if first == reference:
        first, second, difference = second, first, -difference
    is_better = (difference > 0) == (better == "larger")
    low, high = sorted((abs(pair.low), abs(pair.high)))  # both have the sign of the difference, which is significant
    p = f"= {pair.p:.2g}" if pair.p >= 1e-4 else "< 0.0001"
    return (
        f"{first} is {'better' if is_better else 'worse'} than {second} by {abs(difference):.3g} {unit} (95 % interval "
        f"{low:.3g} to {high:.3g}, p {p})"
    )
