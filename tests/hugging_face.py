"""Hugging Face's transformers, as the environment has it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

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
