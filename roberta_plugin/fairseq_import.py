"""Imports fairseq without what its import does besides: faults 16 and 23 in `fairseq_workarounds/__init__.py`.

It calls `logging.basicConfig` with level DEBUG, and it imports scikit-learn and `scipy.stats` for a few metrics.
Whatever of ours imports fairseq imports this module first, so that this holds for every order of imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def no_basic_config() -> Iterator[None]:
    """While entered, `logging.basicConfig` does nothing, because the root logger has a handler.

    The handler is Python's last resort, so warnings reach stderr as before.
    """
    root, handler = logging.getLogger(), logging.lastResort
    if root.handlers or handler is None:
        yield
        return
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@contextmanager
def late_metrics() -> Iterator[None]:
    """While entered, functions of scikit-learn's metrics and of `scipy.stats` can be imported without these modules.

    The first call of one imports its module. Nothing changes where the packages are imported already or missing.
    """
    stand_ins: dict[str, ModuleType] = {}
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and "sklearn" not in sys.modules:
        package = ModuleType("sklearn")
        package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations or [])
        stand_ins |= {"sklearn": package, "sklearn.metrics": _LateModule("sklearn.metrics")}
        package.metrics = stand_ins["sklearn.metrics"]  # type: ignore[attr-defined]
    if importlib.util.find_spec("scipy") is not None and "scipy.stats" not in sys.modules:
        stand_ins["scipy.stats"] = _LateModule("scipy.stats")
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _LateModule(ModuleType):
    """A module whose functions import it when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def late(*args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **options)

        return late


with no_basic_config(), late_metrics():
    import fairseq  # noqa: F401
