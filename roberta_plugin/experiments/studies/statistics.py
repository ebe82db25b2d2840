"""Do variants differ by more than their seeds? Values by seed -> tests, and the sentences that may be concluded.

Every pretraining is one observation; seeds of fine-tuning only make the value of a pretraining steadier (their median).

    every pair              Games and Howell 1976: normal noise whose spread may differ between variants; controls the
                            errors of all pairs at once
    every pair, no model    exact permutation test of the difference of means: with few seeds it cannot reach 0.05, and
                            the report says so
    all variants together   permutation test of the sum of squares between variants (Fisher's randomisation), exact up
                            to 9,999 arrangements, which are drawn where there are more
    a variant by itself     F test of its variance against that of the others (Bonferroni): a warning

The tests are scipy's.
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
_RESAMPLES = 9_999  # of the test of all variants, where there are more arrangements than that
_DIGITS = 9  # accuracies are multiples of 1 / examples: arrangements often tie, but for the rounding of their sums
Sample = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two variants: `first` minus `second`."""

    first: str
    second: str
    difference: float
    """Difference of the means."""
    low: float | None
    """Lower end of the 95 % interval by Games and Howell; None without a spread."""
    high: float | None
    p_games_howell: float | None
    p_permutation: float | None
    """Exact, two-sided, for this pair alone."""

    @property
    def exceeds_noise(self) -> bool:
        """Whether the test of Games and Howell says so."""
        return self.p_games_howell is not None and self.p_games_howell < LEVEL


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The tests of one probe."""

    spreads: Mapping[str, float]
    """Standard deviation of the seeds of each variant that has two or more."""
    too_wide: Mapping[str, float]
    """Variants whose seeds scatter more than those of the others -> p of the F test."""
    p_all: float | None
    """p that all variants are alike, by the permutation test."""
    smallest_p: float | None
    """Smallest p that the permutation test of a pair can give with these numbers of seeds."""
    pairs: tuple[Pair, ...]


def compare(values: Mapping[str, Sequence[float]]) -> Comparison:
    """Compare variants by the values of their seeds (n >= 1 each); variants without a value are left out.

    Example:
        compare({"a": [1.0, 2.0], "b": [5.0, 6.0]}).smallest_p  ->  1/3: 2 of the 6 ways to choose 2 of 4 are as extreme
    """
    samples = {name: np.asarray(seeds, dtype=np.float64) for name, seeds in values.items() if len(seeds)}
    tested = {name: sample for name, sample in samples.items() if len(sample) > 1}
    by_pair = _games_howell(tested)
    nothing = (None, None, None)
    pairs = []
    for first, second in combinations(samples, 2):
        a, b = samples[first], samples[second]
        low, high, p = by_pair.get((first, second), nothing)
        pairs.append(
            Pair(
                first=first,
                second=second,
                difference=float(a.mean() - b.mean()),
                low=low,
                high=high,
                p_games_howell=p,
                p_permutation=_permutation_of_pair(a, b) if first in tested and second in tested else None,
            )
        )
    sizes = sorted(len(sample) for sample in tested.values())
    return Comparison(
        spreads={name: pooled_deviation([sample]) for name, sample in tested.items()},
        too_wide=too_wide(tested),
        p_all=_permutation_of_all(list(tested.values())) if len(tested) > 1 else None,
        smallest_p=smallest_p(sizes[-2], sizes[-1]) if len(sizes) > 1 else None,
        pairs=tuple(pairs),
    )


def pooled_deviation(samples: Sequence[Sample]) -> float:
    """Standard deviation within samples: the root of summed squares over summed degrees of freedom.

    Example:
        [1, 3] and [5, 5]  ->  sqrt((2 + 0) / (1 + 1)) = 1
    """
    shifted = [sample - sample[0] for sample in samples]  # so that equal values have exactly no spread
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in shifted)
    return math.sqrt(squares / sum(len(sample) - 1 for sample in samples))


def too_wide(samples: Mapping[str, Sample]) -> dict[str, float]:
    """The samples (n >= 2 each) that scatter more than all others together, with their p, times the number of samples.

    Example:
        too_wide({"a": [1.0, 1.1], "b": [2.0, 2.1], "c": [5.0, 8.0]})  ->  {"c": 0.0033}
    """
    from scipy.stats import f

    wide = {}
    for name, sample in samples.items():
        others = [other for key, other in samples.items() if key != name]
        noise = pooled_deviation(others) if others else 0.0
        if noise > 0:
            ratio = (pooled_deviation([sample]) / noise) ** 2
            freedom = sum(len(other) - 1 for other in others)
            p = min(1.0, len(samples) * float(f.sf(ratio, len(sample) - 1, freedom)))
            if p < LEVEL:
                wide[name] = p
    return wide


def smallest_p(num_first: int, num_second: int) -> float:
    """The least p of the two-sided exact permutation test of two samples: 2 of all ways to divide them.

    Example:
        smallest_p(2, 2)  ->  2 / 6;  smallest_p(5, 5)  ->  2 / 252
    """
    return min(1.0, 2 / math.comb(num_first + num_second, num_first))


def _games_howell(samples: Mapping[str, Sample]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Interval and p of every pair, in the order of `samples`; without the pairs in which neither scatters."""
    from scipy.stats import tukey_hsd

    if len(samples) < 2:
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):  # two samples without a spread
        result = tukey_hsd(*samples.values(), equal_var=False)
        interval = result.confidence_interval(confidence_level=1 - LEVEL)
    return {
        (first, second): (float(interval.low[i, j]), float(interval.high[i, j]), float(result.pvalue[i, j]))
        for (i, first), (j, second) in combinations(enumerate(samples), 2)
        if np.ptp(samples[first]) or np.ptp(samples[second])
    }


def _permutation_of_pair(a: Sample, b: Sample) -> float:
    from scipy.stats import permutation_test

    spread = float(np.ptp(np.concatenate([a, b]))) or 1.0

    def difference(x: Any, y: Any, axis: int) -> Any:
        return np.round((np.mean(x, axis=axis) - np.mean(y, axis=axis)) / spread, _DIGITS)

    return float(permutation_test((a, b), difference, vectorized=True, n_resamples=np.inf).pvalue)


def _permutation_of_all(samples: Sequence[Sample]) -> float:
    """p of the sum of squares between samples; exact, or of a fixed sample where there are many arrangements."""
    from scipy.stats import permutation_test

    pooled = np.concatenate(samples)
    grand, total = np.mean(pooled), float(np.var(pooled)) * len(pooled) or 1.0
    arrangements = math.factorial(len(pooled)) // math.prod(math.factorial(len(sample)) for sample in samples)
    num_resamples: Any = np.inf if arrangements <= _RESAMPLES else _RESAMPLES

    def between(*arrays: Any, axis: int) -> Any:
        squares = sum(array.shape[axis] * (np.mean(array, axis=axis) - grand) ** 2 for array in arrays)
        return np.round(squares / total, _DIGITS)

    how = {"vectorized": True, "n_resamples": num_resamples, "alternative": "greater"}
    return float(permutation_test(tuple(samples), between, **how, random_state=np.random.default_rng(0)).pvalue)


def conclusions(
    name: str, values: Mapping[str, Sequence[float]], comparison: Comparison, *, reference: str, better: str, unit: str
) -> list[str]:
    """Sentences on what differs by more than the seeds' noise, and on what these seeds cannot show."""
    if len(comparison.spreads) < 2:
        return [f"{name}: nothing can be said about noise before two variants have the values of two seeds each."]
    if not any(comparison.spreads.values()):
        return [f"{name}: the seeds of a variant give equal values, so there is no noise to compare with."]
    spreads = ", ".join(f"{spread:.3g} ({variant})" for variant, spread in comparison.spreads.items())
    sentences = [
        f"{name}: seeds of one variant scatter by s = {spreads} {unit}. That all variants are alike has "
        f"p = {comparison.p_all:.3g} (permutation test of all of them together)."
    ]
    for variant, p in comparison.too_wide.items():
        sentences.append(
            f"Warning: the seeds of {variant} scatter more than those of the others (F test, p {_shown(p)}). Its own "
            "differences are the least certain, and it outweighs the others in the test of all variants together; the "
            f"pairs of the others are tested by their own spreads. Give {variant} more seeds."
        )
    beyond = [pair for pair in comparison.pairs if pair.exceeds_noise]
    described = "; ".join(describe(pair, reference=reference, better=better, unit=unit) for pair in beyond)
    num_pairs = sum(pair.p_games_howell is not None for pair in comparison.pairs)
    test = f"(Games-Howell over {num_pairs} pair{'s' * (num_pairs > 1)}, p < {LEVEL})"
    sentences.append(
        f"Beyond the seeds' noise {test}: {described}."
        if beyond
        else f"No difference between two variants exceeds the seeds' noise {test}."
    )
    assert comparison.smallest_p is not None
    if comparison.smallest_p >= LEVEL:
        counts = sorted({len(values[variant]) for variant in comparison.spreads})
        shown = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        sentences.append(
            f"With {shown} seeds the exact permutation test of a single pair cannot give less "
            f"than p = {comparison.smallest_p:.2g}, whatever the values: statements on pairs assume that seeds scatter "
            "normally. Four seeds a variant or more free them of that."
        )
    return sentences


def describe(pair: Pair, *, reference: str, better: str, unit: str) -> str:
    """As in `dynamic is better than static by 3.1 points (95 % interval 1.2 to 5, p = 0.01)`; the reference last."""
    assert pair.low is not None
    assert pair.high is not None
    first, second, difference, low, high = pair.first, pair.second, pair.difference, pair.low, pair.high
    if first == reference:
        first, second, difference, low, high = second, first, -difference, -high, -low
    is_better = (difference > 0) == (better == "larger")
    if difference < 0:
        low, high = -high, -low
    return (
        f"{first} is {'better' if is_better else 'worse'} than {second} by {abs(difference):.3g} {unit} (95 % interval "
        f"{low:.3g} to {high:.3g}, p {_shown(pair.p_games_howell)})"
    )


def _shown(p: float | None) -> str:
    assert p is not None
    return f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"
