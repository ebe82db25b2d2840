"""What calls are refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(
    match: str, call: Callable[..., Any], *arguments: Any, error: type[Exception] = ValueError, **options: Any
) -> str:
    """The sentence with which a call is refused, in which `match` is found."""
    with pytest.raises(error, match=match) as found:
        call(*arguments, **options)
    return str(found.value)
