"""Hugging Face's transformers, as the environment has it."""

from types import ModuleType

import pytest


def import_transformers() -> ModuleType:
    """The module `transformers`, or a skip where it is not installed."""
    return pytest.importorskip("transformers")
