"""Fault 16: importing fairseq sets up the logging of the whole program. `fairseq_import.py` prevents it."""

from __future__ import annotations

from roberta_plugin import fairseq_import  # noqa: F401


def install() -> None:
    """Do nothing: the import above has done the work."""
