"""Fault 6: --help leaves out the options of the chosen task, model, optimizer and so on."""

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
    """fairseq's `parse_args_and_arch`, with all options in the help text; see fault 6.

    Without --arch the text has the options of our own model.
    """
    arguments = sys.argv[1:] if input_args is None else list(input_args)
    if not any(argument in _HELP for argument in arguments):
        return _fairseq_parse(parser, input_args, parse_known, suppress_defaults, modify_parser)
    num_calls = 0

    def print_help_when_complete(parser: argparse.ArgumentParser) -> None:
        nonlocal num_calls
        num_calls += 1
        if modify_parser is not None:
            modify_parser(parser)
        if num_calls == 2:  # fairseq calls it before each of its two parses
            parser.print_help()
            parser.exit()

    # a later --arch overrides this one; without any, fairseq fails between its two parses
    arguments = ["--arch", "fast_roberta_base", *(argument for argument in arguments if argument not in _HELP)]
    return _fairseq_parse(parser, arguments, modify_parser=print_help_when_complete)


def install() -> None:
    """Make fairseq's commands print all options."""
    options.parse_args_and_arch = parse_args_and_arch
