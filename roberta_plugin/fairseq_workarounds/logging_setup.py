"""Fault 16: importing fairseq sets up the logging of the whole program.

Import this module before anything of fairseq.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


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


with no_basic_config():
    import fairseq  # noqa: F401


def install() -> None:
    """Do nothing: the import above has done the work."""
