"""Imports fairseq without its change of the program's logging: see fault 16 in `fairseq_workarounds/__init__.py`.

fairseq calls `logging.basicConfig` with level DEBUG when it is imported. Whatever of ours imports fairseq imports this
module first, so that no order of imports lets that call take effect.
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
