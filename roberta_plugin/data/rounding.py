"""Integer division and multiples, rounded up; for numbers and arrays.

Used by several stages of the flow in `roberta_plugin/data/__init__.py`.
"""

from __future__ import annotations

from typing import Any


def ceil_div(number: Any, divisor: int) -> Any:
    """`number` / `divisor`, rounded up. Example: ceil_div(9, 4) = 3."""
    return -(-number // divisor)


def round_up(number: Any, multiple: int) -> Any:
    """The smallest multiple of `multiple` that is not below `number`. Example: round_up(5, 4) = 8."""
    return ceil_div(number, multiple) * multiple
