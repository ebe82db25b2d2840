"""Wraps functions of fairseq's training loop, which has no hooks but calls functions by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from fairseq import checkpoint_utils

# fairseq_cli.train is "__main__" under python -m, and "__mp_main__" in ranks that it has spawned.
_PROGRAMS = ("fairseq_cli.train", "__main__", "__mp_main__")


def programs() -> list[ModuleType]:
    """Loaded modules that hold fairseq's training loop; none before fairseq_cli.train is imported."""
    modules = [sys.modules[name] for name in _PROGRAMS if name in sys.modules]
    return [module for module in modules if hasattr(module, "validate_and_save") and hasattr(module, "cli_main")]


def wrap(module: ModuleType | type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace `module.name(...)` by `wrapper(original, ...)`; repeating the same wrapper changes nothing."""
    original = getattr(module, name)
    if wrapper in getattr(original, "wrappers", ()):
        return

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        return wrapper(original, *args, **options)

    wrapped.wrappers = (*getattr(original, "wrappers", ()), wrapper)  # type: ignore[attr-defined]
    setattr(module, name, wrapped)


@contextmanager
def when_loaded(look: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Inside, `look` sees the state of every checkpoint that fairseq loads, and may change it or raise an error."""
    load_to_cpu = checkpoint_utils.load_checkpoint_to_cpu

    def load_and_look(*arguments: Any, **options: Any) -> dict[str, Any]:
        state: dict[str, Any] = load_to_cpu(*arguments, **options)
        look(state)
        return state

    checkpoint_utils.load_checkpoint_to_cpu = load_and_look
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu = load_to_cpu
