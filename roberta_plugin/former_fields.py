"""Fields of dataclasses that have another name now: both names work for one version, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def formerly(former: str, now: str) -> Callable[[type[T]], type[T]]:
    """Let a field of a dataclass be given and read by its former name, too, for one version, with a warning."""

    def warn(owner: type[Any]) -> None:
        message = f"{owner.__name__}.{former} is {now} now; its former name goes with the next version: rename it."
        warnings.warn(message, DeprecationWarning, stacklevel=3)

    def decorate(owner: type[T]) -> type[T]:
        initialize = owner.__init__

        @functools.wraps(initialize)
        def with_former(self: Any, *values: Any, **more: Any) -> None:
            if former in more:
                warn(owner)
                more.setdefault(now, more.pop(former))
            initialize(self, *values, **more)

        def read(self: Any) -> Any:
            warn(owner)
            return getattr(self, now)

        owner.__init__ = with_former  # type: ignore[method-assign]
        setattr(owner, former, property(read))
        return owner

    return decorate
