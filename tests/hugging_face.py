"""Packages of Hugging Face's world, as the environment has them."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def import_transformers() -> ModuleType:
    """The module `transformers`, or a skip where it is not installed."""
    return pytest.importorskip("transformers")


@contextmanager
def code_in(folder: Path) -> Iterator[None]:
    """While entered, transformers copies the code of models to a folder instead of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(import_transformers().dynamic_module_utils, "HF_MODULES_CACHE", str(folder))
        yield


class Later:
    """A module that is imported when a test asks for something in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks everything in a module whether it is a test
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def later(name: str) -> Later:
    """A module of seconds, in tests that one of pytest-xdist's processes runs and all collect; or a skip."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"needs {name}", allow_module_level=True)
    return Later(name)
