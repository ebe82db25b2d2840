"""Faults 4, 5, 6 and 25: what fairseq's commands make of their options before a training begins."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq.data import data_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.data.mixture import data_folders

_HELP = ("-h", "--help")


def parse_args_and_arch(
    fairseqs: Callable[..., Any],
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    parse_known: bool = False,
    suppress_defaults: bool = False,
    modify_parser: Callable[[argparse.ArgumentParser], None] | None = None,
) -> Any:
    """fairseq's parse, with all options in the help text (fault 6) and without a TPU (fault 4).

    Without --arch the text has the options of our own model.
    """
    arguments = sys.argv[1:] if input_args is None else list(input_args)
    if not any(argument in _HELP for argument in arguments):
        parsed = fairseqs(parser, input_args, parse_known, suppress_defaults, modify_parser)
        options = parsed[0] if parse_known else parsed
        if getattr(options, "bf16", False):
            options.tpu = "--tpu" in arguments
        return parsed
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
    return fairseqs(parser, arguments, modify_parser=print_help_when_complete)


def check_valid_subsets(fairseqs: Callable[..., None], train_cfg: Any) -> None:
    """Refuse validation splits that would be ignored, in all folders of a mixture; see fault 5."""
    is_mixture = getattr(train_cfg.task, "_name", None) == "roberta_masked_lm"
    find_in_folder = data_utils._find_extra_valid_paths

    def find(data: str) -> set[str]:
        if is_mixture or os.path.isdir(data):
            folders = data_folders(data) if is_mixture else [Path(data)]
            return set().union(*map(further_validation_splits, folders))
        found: set[str] = find_in_folder(data)
        return found

    data_utils._find_extra_valid_paths = find
    try:
        fairseqs(train_cfg)
    finally:
        data_utils._find_extra_valid_paths = find_in_folder


def further_validation_splits(folder: Path) -> set[str]:
    """Names such as `valid1`, as fairseq's search matches them."""
    return {path.stem for path in folder.iterdir() if re.match("valid*[0-9].*", path.name)}


def call_main(fairseqs: Callable[..., None], cfg: Any, main: Any, **options: Any) -> None:
    """fairseq's start of a training, after our classes have checked its options and data; see fault 25."""
    try:
        model, task = ARCH_MODEL_REGISTRY.get(_name(cfg.model)), TASK_REGISTRY.get(_name(cfg.task))
        if hasattr(task, "check_start"):  # one of ours
            task.check_start(cfg)
            if hasattr(model, "check_options"):
                model.check_options(cfg.model)
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")  # sweeps find it in the log by the name
    fairseqs(cfg, main, **options)


def _name(section: Any) -> Any:
    return getattr(section, "_name", None)
