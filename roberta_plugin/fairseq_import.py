"""Imports fairseq without its side effects: faults 16 and 23 in `fairseq_workarounds/__init__.py`.

fairseq calls `logging.basicConfig` with level DEBUG, and imports scikit-learn and `scipy.stats` for a few metrics.
Each of our modules that imports fairseq imports this one first, so the order of imports does not matter.
`OwnGroup` is a base of the classes that we register.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from roberta_plugin.settings import check_values


class OwnGroup:
    """A task, criterion or optimizer of ours: its options have a group of their own in `fairseq-train --help`, and
    `check_options` refuses values that the fields of its dataclass do not allow.
    """

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the dataclass, as fairseq's base class does."""
        group = parser.add_argument_group(f"options of roberta_plugin's {cls.__name__}")
        super().add_args(group)  # type: ignore[misc]

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """Refuse options that cannot work, as far as they are known before the model is built.

        `cfg` may be the namespace of a whole command line, before a job is submitted.
        """
        dataclass = getattr(cls, "__dataclass", None)  # that it was registered with
        if dataclass is not None:
            check_values(cfg, dataclass)


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
    """While entered, `from sklearn.metrics import f` and `from scipy.stats import f` do not load these modules yet.

    The first call of a function loads its module. Packages that are already imported, or missing, are left alone.
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
    """A stand-in whose functions load the real module when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def late(*args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **options)

        return late


with no_basic_config(), late_metrics():
    import fairseq  # noqa: F401
