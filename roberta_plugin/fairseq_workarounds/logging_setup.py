"""Fault 16: importing fairseq sets up the logging of the whole program.

This module has to be imported before anything of fairseq.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_basic_config() -> Iterator[None]:
    """Make `logging.basicConfig` change nothing inside: it leaves a root logger alone that has a handler.

    The handler is the one that Python uses where there is none: warnings reach stderr as before.
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


with no_basic_config():
    import fairseq  # noqa: F401


def install() -> None:
    """The import above was all."""
