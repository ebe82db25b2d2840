"""Numbers that decide beside the weights of a model, thresholds and temperatures: where a split gets them from.

A number is given by an option, or found by the right answers of the development set. On any other split it would be
found by the very answers that judge it, so there it is refused. A kind names its numbers (`Kind.decides_by`), and its
`judged` gets them from here alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

DEVELOPMENT = "valid"  # the split to choose by
NUMBERS = ("threshold", "null_threshold", "temperature")  # as the metrics of a development set call them


class Decisions:
    """The numbers by which outputs for a split are judged."""

    def __init__(self, split: str, given: Mapping[str, Any] | None = None) -> None:
        """Numbers of a split; `given` are options of the scoring, by name."""
        self._split, self._given = split, given or {}
        self.used: dict[str, float] = {}
        """Those that were applied, by name."""

    def wish(self, option: str) -> Any:
        """What an option says of how a number is to be found; None if it is not given."""
        return self._given.get(option)

    def given(self, name: str) -> float | None:
        """The number that an option gives."""
        found: float | None = self._given.get(name)
        if found is not None:
            self.used[name] = found
        return found

    def find(self, name: str, search: Callable[[], float], *, is_labelled: bool) -> float:
        """The number that an option gives, or that `search` finds on the development set.

        Raises:
            ValueError: if none is given, and the split is another one or has no right answers.
        """
        found = self.given(name)
        if found is None:
            what, flag = name.replace("_", " "), f"--{name.replace('_', '-')}"
            if self._split != DEVELOPMENT:
                raise ValueError(
                    f"The {what} is found on the development set, not on the split {self._split}: evaluate "
                    f"`{DEVELOPMENT}` too, or give {flag}."
                )
            if not is_labelled:
                raise ValueError(f"The {what} is found by right answers, which the development set lacks: give {flag}.")
            found = self.used[name] = search()
        return found


def is_number(name: str, value: Any) -> bool:
    """Whether a value can be the number of this name."""
    is_finite = name in NUMBERS and isinstance(value, float) and math.isfinite(value)
    return is_finite and (value > 0 if name == "temperature" else 0 <= value <= 1)
