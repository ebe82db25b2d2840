"""Do variants differ by more than their seeds? Results by seed -> tests, and the sentences that may be concluded.

Every pretraining is one observation; seeds of fine-tuning only make the value of a pretraining steadier (their median).

    all variants together   exact permutation test of the sum of squares between variants (Fisher's randomisation)
    every pair              Tukey's HSD: normal noise with the spread of all variants' seeds together; controls the
                            errors of all pairs at once
    every pair, no model    exact permutation test of the difference of means: with few seeds it cannot reach 0.05, and
                            the report says so

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


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two variants: `first` minus `second`."""

    first: str
    second: str
    difference: float
    """Of the means."""
    low: float | None
    """Of Tukey's 95 % interval; None without a spread."""
    high: float | None
    p_tukey: float | None
    p_permutation: float | None
    """Exact, two-sided, of this pair alone."""

    @property
    def exceeds_noise(self) -> bool:
        """Whether Tukey's test says so."""
        return self.p_tukey is not None and self.p_tukey < LEVEL


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the seeds of a probe allow to say."""

    noise: float | None
    """Standard deviation of a variant's seeds, over all variants; None if no variant has two."""
    p_all: float | None
    """That all variants are alike, by the exact permutation test."""
    smallest_p: float | None
    """The least that the permutation test of a pair can give with so many seeds."""
    pairs: tuple[Pair, ...]


def compare(values: Mapping[str, Sequence[float]]) -> Comparison:
    """Compare variants by the values of their seeds (n >= 1 each); variants without a value are left out.

    Example:
        compare({"a": [1.0, 2.0], "b": [5.0, 6.0]}).smallest_p  ->  1/3: 2 of the 6 ways to choose 2 of 4 are as extreme
    """
    samples = {name: np.asarray(found, dtype=np.float64) for name, found in values.items() if len(found)}
    tested = {name: sample for name, sample in samples.items() if len(sample) > 1}
    tukey = _tukey(tested)
    pairs = []
    for first, second in combinations(samples, 2):
        a, b = samples[first], samples[second]
        low, high, p_tukey = tukey.get((first, second), (None, None, None))
        both = first in tested and second in tested
        pairs.append(
            Pair(
                first=first,
                second=second,
                difference=float(a.mean() - b.mean()),
                low=low,
                high=high,
                p_tukey=p_tukey,
                p_permutation=_permutation_of_pair(a, b) if both else None,
            )
        )
    sizes = sorted(len(sample) for sample in tested.values())
    return Comparison(
        noise=pooled_deviation(list(tested.values())),
        p_all=_permutation_of_all(list(tested.values())) if len(tested) > 1 else None,
        smallest_p=smallest_p(sizes[-2], sizes[-1]) if len(sizes) > 1 else None,
        pairs=tuple(pairs),
    )


def pooled_deviation(samples: Sequence[NDArray[np.float64]]) -> float | None:
    """Standard deviation within samples: the root of summed squares over summed degrees of freedom.

    Example:
        [1, 3] and [5, 5]  ->  sqrt((2 + 0) / (1 + 1)) = 1
    """
    freedom = sum(len(sample) - 1 for sample in samples)
    if not freedom:
        return None
    shifted = [sample - sample[0] for sample in samples]  # so that equal values have exactly no spread
    return math.sqrt(sum(float(((sample - sample.mean()) ** 2).sum()) for sample in shifted) / freedom)


def smallest_p(num_first: int, num_second: int) -> float:
    """The least p of the two-sided exact permutation test of two samples: 2 of all ways to divide them.

    Example:
        smallest_p(2, 2)  ->  2 / 6;  smallest_p(5, 5)  ->  2 / 252
    """
    return min(1.0, 2 / math.comb(num_first + num_second, num_first))


def _tukey(samples: Mapping[str, NDArray[np.float64]]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Interval and p of every pair (in the order of `samples`); empty without a spread to compare with."""
    from scipy.stats import tukey_hsd

    if len(samples) < 2 or not pooled_deviation(list(samples.values())):
        return {}
    result = tukey_hsd(*samples.values())
    interval = result.confidence_interval(confidence_level=1 - LEVEL)
    found = {}
    for (i, first), (j, second) in combinations(enumerate(samples), 2):
        found[first, second] = (float(interval.low[i, j]), float(interval.high[i, j]), float(result.pvalue[i, j]))
    return found


def _permutation_of_pair(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    from scipy.stats import permutation_test

    spread = float(np.ptp(np.concatenate([a, b]))) or 1.0

    def difference(x: Any, y: Any, axis: int) -> Any:
        return np.round((np.mean(x, axis=axis) - np.mean(y, axis=axis)) / spread, _DIGITS)

    return _p_value(permutation_test((a, b), difference, vectorized=True, n_resamples=np.inf))


def _permutation_of_all(samples: Sequence[NDArray[np.float64]]) -> float:
    """p of the sum of squares between samples; exact, or of a fixed sample where there are many arrangements."""
    from scipy.stats import permutation_test

    pooled = np.concatenate(samples)
    grand, total = np.mean(pooled), float(np.var(pooled)) * len(pooled) or 1.0

    def between(*arrays: Any, axis: int) -> Any:
        found = sum(array.shape[axis] * (np.mean(array, axis=axis) - grand) ** 2 for array in arrays)
        return np.round(found / total, _DIGITS)

    num_resamples: Any = np.inf if _num_arrangements([len(s) for s in samples]) <= _RESAMPLES else _RESAMPLES
    return _p_value(
        permutation_test(
            tuple(samples),
            between,
            vectorized=True,
            n_resamples=num_resamples,
            alternative="greater",
            random_state=np.random.default_rng(0),
        )
    )


def _num_arrangements(sizes: Sequence[int]) -> int:
    """Ways to divide all values into samples of these sizes."""
    return math.factorial(sum(sizes)) // math.prod(math.factorial(size) for size in sizes)


def _p_value(result: Any) -> float:
    return float(result.pvalue)


def conclusions(
    name: str, values: Mapping[str, Sequence[float]], found: Comparison, *, reference: str, better: str
) -> list[str]:
    """Sentences on what differs by more than the seeds' noise, and on what these seeds cannot show.

    Args:
        name: of the probe.
        values: as for `compare`.
        found: its result.
        reference: the variant that the others are compared with.
        better: values that are better, "smaller" or "larger".
    """
    counts = sorted({len(seeds) for seeds in values.values() if len(seeds)})
    if found.noise is None or len([seeds for seeds in values.values() if len(seeds) > 1]) < 2:
        return [f"{name}: with one seed a variant nothing can be said about noise; give two seeds or more."]
    if found.noise == 0:
        return [f"{name}: the seeds of a variant give equal values, so there is no noise to compare with."]
    number = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    sentences = [
        f"{name}: seeds of one variant scatter by s = {found.noise:.3g} (pooled standard deviation, {number} seeds a "
        f"variant). That all variants are alike has p = {found.p_all:.3g} (permutation test of all of them together)."
    ]
    beyond = [pair for pair in found.pairs if pair.exceeds_noise]
    described = "; ".join(describe(pair, reference=reference, better=better) for pair in beyond)
    num_pairs = sum(pair.p_tukey is not None for pair in found.pairs)
    sentences.append(
        f"Beyond the seeds' noise (Tukey's HSD over {num_pairs} pair{'s' * (num_pairs > 1)}, p < {LEVEL}): {described}."
        if beyond
        else f"No difference between two variants exceeds the seeds' noise (Tukey's HSD over {num_pairs} "
        f"pair{'s' * (num_pairs > 1)}, p < {LEVEL})."
    )
    assert found.smallest_p is not None
    if found.smallest_p >= LEVEL:
        sentences.append(
            f"With {number} seeds the exact permutation test of a single pair cannot give less than p = "
            f"{found.smallest_p:.2g}, whatever the values: statements on pairs rest on the assumption of Tukey's test "
            "that seeds scatter normally and alike in all variants. Four seeds a variant or more free them of it."
        )
    return sentences


def describe(pair: Pair, *, reference: str, better: str) -> str:
    """As in `dynamic is better than static by 3.1 (95 % interval 1.2 to 5, p = 0.01)`; the reference comes second."""
    first, second, difference, low, high = pair.first, pair.second, pair.difference, pair.low, pair.high
    assert low is not None
    assert high is not None
    if first == reference:
        first, second, difference, low, high = second, first, -difference, -high, -low
    is_better = (difference > 0) == (better == "larger")
    if difference < 0:
        low, high = -high, -low
    return (
        f"{first} is {'better' if is_better else 'worse'} than {second} by {abs(difference):.3g} (95 % interval "
        f"{low:.3g} to {high:.3g}, p {_shown(pair.p_tukey)})"
    )


def _shown(p: float | None) -> str:
    assert p is not None
    return f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"
