"""Hugging Face's transformers, imported where the installed torchaudio cannot be.

fairseq asks for torchaudio, whose wheel is built for CUDA and fails to load beside a CPU build of torch; transformers
imports it without need as soon as it is installed.
"""

import sys
from types import ModuleType

import pytest


def import_transformers() -> ModuleType:
    """The module `transformers`, or a skip where it is not installed."""
    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        sys.modules["torchaudio"] = None  # type: ignore[assignment]
    return pytest.importorskip("transformers")
