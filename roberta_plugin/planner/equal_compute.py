"""Trainings that cost the same: the batch sizes of the paper's Table 3, and comparisons at equal tokens or FLOPs.

The paper compares batches of 256, 2K and 8K sequences "for the same number of passes through the training data"
(section 4.3): updates times batch size stays the same, and the learning rate is chosen for each.

Example: 1M updates of 256 sequences with learning rate 1e-4, in batches of 2,048:

    batch, updates, rates = 2048, equal_updates(1_000_000, 256, 2048), scaled_rate(1e-4, 256, 2048, rule="sqrt")
    # 125,000 updates, learning rate 2.83e-4; the paper's Table 3 has 125K and 7e-4
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

RateRule = Literal["sqrt", "linear", "same"]


class BatchPoint(NamedTuple):
    """One row of a comparison of batch sizes."""

    batch_size: int
    """Sequences in an update."""
    update_freq: int
    """--update-freq: batches of each device in an update."""
    num_updates: int
    """--max-update."""
    learning_rate: float
    """--lr."""
    num_tokens: int
    """Tokens of all updates, at full length."""


PAPER_TABLE_3 = ((256, 1_000_000, 1e-4), (2048, 125_000, 7e-4), (8192, 31_250, 1e-3))
"""Batch size, updates (the paper writes 1M, 125K and 31K) and learning rate of the paper's rows."""


def equal_updates(num_updates: int, batch_size: int, other_batch_size: int) -> int:
    """Updates of `other_batch_size` sequences that see as many as `num_updates` of `batch_size`.

    Example: equal_updates(1_000_000, 256, 8192) is 31,250.

    Raises:
        ValueError: if there is no such whole number.
    """
    updates, rest = divmod(num_updates * batch_size, other_batch_size)
    if rest or updates < 1:
        raise ValueError(
            f"{num_updates:,} updates of {batch_size:,} sequences are {num_updates * batch_size:,} sequences, which is "
            f"not a multiple of {other_batch_size:,}: choose a number of updates that both batch sizes allow."
        )
    return updates


def scaled_rate(learning_rate: float, batch_size: int, other_batch_size: int, *, rule: RateRule) -> float:
    """The learning rate for another batch size.

    sqrt keeps the variance of an update (Krizhevsky 2014, section 5; Hoffer et al. 2017), linear the sum of the updates
    of an epoch (Goyal et al. 2017), same leaves it. The paper tunes it: from 256 to 2K it lies between sqrt and linear.

    Example: from 256 to 1024 sequences, 1e-4 becomes 2e-4 by sqrt and 4e-4 by linear.
    """
    if rule not in get_args(RateRule):
        raise ValueError(f"The rule of the learning rate must be sqrt, linear or same, got {rule!r}.")
    ratio = other_batch_size / batch_size
    factors: dict[RateRule, float] = {"sqrt": math.sqrt(ratio), "linear": ratio, "same": 1.0}
    return learning_rate * factors[rule]


def batch_points(
    batch_sizes: Sequence[int],
    *,
    num_updates: int,
    learning_rate: float,
    batch_of_device: int,
    num_devices: int = 1,
    tokens_per_sample: int = 512,
    rule: RateRule = "sqrt",
    learning_rates: Sequence[float] | None = None,
) -> list[BatchPoint]:
    """Trainings at equal tokens, one for each batch size.

    Args:
        batch_sizes: sequences in an update; the first is that of `num_updates` and `learning_rate`.
        num_updates: updates at the first batch size.
        learning_rate: at the first batch size.
        batch_of_device: --batch-size.
        num_devices: devices (ranks) of each training.
        tokens_per_sample: --tokens-per-sample.
        rule: how the learning rate follows the batch size.
        learning_rates: the rate of each batch size instead.

    Raises:
        ValueError: if a batch size is not a multiple of the sequences of all devices, or the number of rates is wrong.
    """
    if learning_rates is not None and len(learning_rates) != len(batch_sizes):
        raise ValueError(f"There are {len(learning_rates)} learning rates for {len(batch_sizes)} batch sizes.")
    at_once = batch_of_device * num_devices
    points = []
    for number, size in enumerate(batch_sizes):
        if size % at_once:
            raise ValueError(
                f"A batch of {size:,} sequences is not a multiple of the {at_once:,} that {num_devices} devices "
                f"take at once with --batch-size {batch_of_device}: lower --batch-size."
            )
        updates = equal_updates(num_updates, batch_sizes[0], size)
        rate = scaled_rate(learning_rate, batch_sizes[0], size, rule=rule)
        rate = rate if learning_rates is None else learning_rates[number]
        points.append(BatchPoint(size, size // at_once, updates, rate, updates * size * tokens_per_sample))
    return points


def equal_tokens(num_tokens: int, *, tokens_in_update: float) -> int:
    """Updates that see `num_tokens`, rounded; sentence-pair has short sequences and so few tokens in an update.

    Example: 256 pairs of 55 tokens are 14,080 tokens; 1M updates of 256 x 512 tokens take 9,309,091 such updates.
    """
    return max(1, round(num_tokens / tokens_in_update))


def equal_flops(flops: float, *, flops_of_update: float) -> int:
    """Updates that cost `flops`, rounded, from the FLOPs of one (`models.flops.training_flops`).

    Example: a model of twice the FLOPs an update gets half of the updates.
    """
    return max(1, round(flops / flops_of_update))


def check_equal_tokens(tokens_of: dict[str, float], *, tolerance: float = 0.01) -> None:
    """Refuse a comparison that claims equal tokens and has not.

    Args:
        tokens_of: tokens of each variant, by name.
        tolerance: the largest may exceed the smallest by this share.

    Raises:
        ValueError: naming the variants of most and fewest tokens.
    """
    if not tokens_of:
        return
    most, fewest = max(tokens_of, key=lambda name: tokens_of[name]), min(tokens_of, key=lambda name: tokens_of[name])
    if tokens_of[most] > (1 + tolerance) * tokens_of[fewest]:
        raise ValueError(
            f"The variants do not see equally many tokens: {most} sees {tokens_of[most]:,.0f} and {fewest} "
            f"{tokens_of[fewest]:,.0f}. Change updates or batch size of one of them."
        )
