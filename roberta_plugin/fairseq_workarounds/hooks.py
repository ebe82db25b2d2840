"""Listeners to functions of fairseq, which calls its functions by name but has no hooks of its own."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Listener = Callable[..., Any]
"""Called as `listener(fairseqs, ...)` in the place of fairseq's function, which `fairseqs(...)` calls in turn."""

PROGRAM = "fairseq_cli.train"  # fairseq-train's own module, as the owner of a function
NAMES = (PROGRAM, "__main__", "__mp_main__")  # of that module: also under python -m, and in ranks that it has spawned


def programs() -> list[ModuleType]:
    """Loaded modules that hold fairseq's training loop; none before fairseq_cli.train is imported."""
    modules = [sys.modules[name] for name in NAMES if name in sys.modules]
    return [module for module in modules if hasattr(module, "validate_and_save") and hasattr(module, "cli_main")]


def install(table: Mapping[tuple[Any, str], list[Listener]]) -> None:
    """Let each function (owner, name) of the table call its listeners; calling this again changes nothing."""
    for (owner, name), listeners in table.items():
        for place in programs() if owner == PROGRAM else [owner]:
            _hook(place, name, listeners)


@contextmanager
def listening(owner: Any, name: str, listener: Listener) -> Iterator[None]:
    """While entered, `listener` is the first listener of the function `name` of a module or class."""
    if not hasattr(getattr(owner, name), "listeners"):
        _hook(owner, name, [])
    listeners: list[Listener] = getattr(owner, name).listeners
    listeners.insert(0, listener)
    try:
        yield
    finally:
        listeners.remove(listener)


def function_behind(fairseqs: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's own function behind the `fairseqs` of a listener."""
    while isinstance(fairseqs, functools.partial):
        fairseqs = fairseqs.args[0]
    function: Callable[..., Any] = inspect.unwrap(fairseqs)
    return function


def _hook(owner: Any, name: str, listeners: list[Listener]) -> None:
    original = getattr(owner, name)
    if getattr(original, "listeners", None) is listeners:
        return

    @functools.wraps(original)
    def hooked(*args: Any, **options: Any) -> Any:
        call = original
        for listener in reversed(listeners):
            call = functools.partial(listener, call)
        return call(*args, **options)

    hooked.listeners = listeners  # type: ignore[attr-defined]
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(hooked) if is_static else hooked)
