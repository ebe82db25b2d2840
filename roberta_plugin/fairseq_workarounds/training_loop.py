"""Where fairseq's training loop is got hold of: it offers no hooks, so functions that it calls by name are wrapped."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# The second and third are fairseq_cli.train where that was started by python -m, and in ranks that it has spawned.
_PROGRAMS = ("fairseq_cli.train", "__main__", "__mp_main__")


def programs() -> list[ModuleType]:
    """The modules of this process that hold fairseq's training loop: none before fairseq_cli.train is imported."""
    modules = [sys.modules[name] for name in _PROGRAMS if name in sys.modules]
    return [module for module in modules if hasattr(module, "validate_and_save") and hasattr(module, "cli_main")]


def wrap(module: ModuleType | type, name: str, wrapper: Callable[..., Any]) -> None:
    """Let `module.name(...)` be `wrapper(original, ...)`; a second time changes nothing."""
    original = getattr(module, name)
    if wrapper in getattr(original, "wrappers", ()):
        return

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        return wrapper(original, *args, **options)

    wrapped.wrappers = (*getattr(original, "wrappers", ()), wrapper)  # type: ignore[attr-defined]
    setattr(module, name, wrapped)
