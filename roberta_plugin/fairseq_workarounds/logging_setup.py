"""Fault 16: importing fairseq sets up the logging of the whole program.

`fairseq_import.py` prevents it. Of fairseq's own programs, fairseq-train sets up its logging before that import; the
others import fairseq first, and print the debug messages of every library: they get the level they ask for.
"""

from __future__ import annotations

import functools
import logging
import os
import sys

from roberta_plugin import fairseq_import  # noqa: F401


@functools.cache
def install() -> None:
    """Take back the level DEBUG in a program of fairseq that was not asked for it; once, when the plugin registers."""
    root, level = logging.getLogger(), os.environ.get("LOGLEVEL", "INFO").upper()
    if root.level == logging.DEBUG and any(name.startswith("fairseq_cli.") for name in sys.modules):
        root.setLevel(level)
