"""Integer division and multiples, rounded up; for numbers and arrays.

Used by several stages of the flow in `roberta_plugin/data/__init__.py`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from numpy.typing import NDArray

Number = TypeVar("Number", int, float, NDArray[Any])


def ceil_div(number: Number, divisor: int) -> Number:
    """`number` / `divisor`, rounded up. Example: ceil_div(9, 4) = 3."""
    return -(-number // divisor)


def round_up(number: Number, multiple: int) -> Number:
    """The smallest multiple of `multiple` that is not below `number`. Example: round_up(5, 4) = 8."""
    return ceil_div(number, multiple) * multiple
