"""Numbers that grow in the course of a training: the length of blocks and the tokens of a batch.

Early in training, more updates teach more than longer or larger ones (Li et al. 2022, "The Stability-Efficiency
Dilemma", arXiv 2108.06084, for lengths; Smith et al. 2018, arXiv 1711.00489, for batches). A growth is written as
`UPDATE:VALUE ...`: the value from that update on.

An epoch ends early where a number grows, and the next epoch has the new blocks and batches: so a training is the same
however often it is stopped, also at such an update.

Example:
    parse("0:64 2500:128", option="--grow-tokens-per-sample")  ->  (Step(0, 64), Step(2500, 128))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_STEP = re.compile(r"(\d+):(\d+)")


class Step(NamedTuple):
    """A value, and the number of updates after which it holds."""

    update: int
    value: int


def parse(text: str | None, *, option: str) -> tuple[Step, ...]:
    """The steps of `UPDATE:VALUE ...`, in order; none for None.

    Raises:
        ValueError: if a step is not two numbers, the first is not from update 0 on, or the updates or values do not
            grow.
    """
    if text is None:
        return ()
    steps = []
    for word in text.replace(",", " ").split():
        match = _STEP.fullmatch(word)
        if match is None:
            raise ValueError(f'{option}: {word!r} is not UPDATE:VALUE. Write it as in {option} "0:64 2500:128".')
        steps.append(Step(*map(int, match.groups())))
    if not steps or steps[0].update != 0:
        raise ValueError(f"{option} {text!r} does not say what holds from update 0 on: begin with 0:VALUE.")
    for before, after in pairwise(steps):
        if after.update <= before.update or after.value <= before.value:
            raise ValueError(
                f"{option}: {after.update}:{after.value} comes after {before.update}:{before.value}, and updates and "
                "values must both grow."
            )
    return tuple(steps)


def value_at(steps: Sequence[Step], updates: int, *, default: int) -> int:
    """The value after this number of updates; `default` without steps."""
    return next((step.value for step in reversed(steps) if step.update <= updates), default)


def next_step(steps: Sequence[Step], updates: int) -> int | None:
    """The number of updates at which the next step begins; None if there is none."""
    return next((step.update for step in steps if step.update > updates), None)
