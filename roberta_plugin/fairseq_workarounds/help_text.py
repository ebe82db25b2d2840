"""Fault 6: a --help without the options of the task, the model, the optimizer and the others that were chosen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fairseq import options

_HELP = ("-h", "--help")
_fairseq_parse = options.parse_args_and_arch


def parse_args_and_arch(
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    parse_known: bool = False,
    suppress_defaults: bool = False,
    modify_parser: Callable[[argparse.ArgumentParser], None] | None = None,
) -> Any:
    """As fairseq's function of this name, with all options in the help text; see fault 6.

    Without --arch the text has the options of our own model.
    """
    words = sys.argv[1:] if input_args is None else list(input_args)
    if not any(word in _HELP for word in words):
        return _fairseq_parse(parser, input_args, parse_known, suppress_defaults, modify_parser)
    num_calls = 0

    def print_help_when_complete(parser: argparse.ArgumentParser) -> None:
        nonlocal num_calls
        num_calls += 1
        if modify_parser is not None:
            modify_parser(parser)
        if num_calls == 2:  # fairseq calls it before it parses for the first time, and for the second
            parser.print_help()
            parser.exit()

    # the last --arch counts; without any, fairseq fails between its two parsers
    words = ["--arch", "fast_roberta_base", *(word for word in words if word not in _HELP)]
    return _fairseq_parse(parser, words, modify_parser=print_help_when_complete)


def install() -> None:
    """Let fairseq's commands print all options."""
    options.parse_args_and_arch = parse_args_and_arch
