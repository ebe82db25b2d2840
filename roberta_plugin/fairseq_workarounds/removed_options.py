"""Fault 22: what a command with an option of an earlier version is told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

REMOVED = {
    "--background-checkpoints": "save less often where checkpoints take long, by --save-interval-updates",
}
"""An option, or one value of it -> what to do instead."""


def parse_args_and_arch(
    fairseqs: Callable[..., Any],
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    *args: Any,
    **options: Any,
) -> Any:
    """fairseq's parse; a removed option is refused in one line, without the usage of all others."""
    arguments = sys.argv[1:] if input_args is None else list(input_args)
    if removed := _removed(arguments):
        option = removed[0]
        parser.usage = argparse.SUPPRESS
        parser.error(f"{option} was removed: {REMOVED[option]}.")
    return fairseqs(parser, input_args, *args, **options)


def without_removed(arguments: Sequence[str]) -> list[str]:
    """The arguments of an earlier version that are still options."""
    words, found = _words(arguments), set(_removed(arguments))
    of_two = {at + offset for at, pair in enumerate(pairwise(words)) if " ".join(pair) in found for offset in (0, 1)}
    return [word for at, word in enumerate(words) if at not in of_two and word not in found]


def _removed(arguments: Sequence[str]) -> list[str]:
    words = _words(arguments)
    return [word for word in (*words, *map(" ".join, pairwise(words))) if word in REMOVED]


def _words(arguments: Sequence[str]) -> list[str]:
    """The arguments, `--name=value` in two words."""
    return [part for text in arguments for part in (text.split("=", 1) if text.startswith("--") else [text])]
