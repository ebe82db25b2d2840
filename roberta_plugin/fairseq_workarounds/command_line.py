"""Faults 4, 5, 6 and 25: what fairseq's commands make of their options before a training begins."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import data_utils
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import MISSING

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


def convert_namespace_to_omegaconf(fairseqs: Callable[..., Any], args: argparse.Namespace) -> Any:
    """fairseq's configuration of its options, after a check that none is missing; see fault 25."""
    try:
        check_needed(args)
    except ValueError as error:
        sys.exit(f"ValueError: {error}")
    return fairseqs(args)


def check_needed(args: argparse.Namespace) -> None:
    """Refuse options that miss one without a default, such as --total-num-update."""
    for kind, chosen in chosen_classes(args).items():
        options = with_defaults(args, chosen)
        for name in needed_by(chosen):
            if getattr(options, name) in (None, MISSING):
                option, owner = (f"--{word.replace('_', '-')}" for word in (name, kind))
                raise ValueError(f"{option} is missing: {owner} {getattr(args, kind)} needs it.")


def chosen_classes(args: argparse.Namespace) -> dict[str, Any]:
    """What --task, --arch, --criterion, --optimizer and --lr-scheduler name in fairseq's registries, by option."""
    registries: dict[str, dict[str, Any]] = {
        "task": TASK_REGISTRY,
        "arch": ARCH_MODEL_REGISTRY,
        "criterion": CRITERION_REGISTRY,
        "optimizer": OPTIMIZER_REGISTRY,
        "lr_scheduler": LR_SCHEDULER_REGISTRY,
    }
    return {kind: registry.get(getattr(args, kind, None) or "") for kind, registry in registries.items()}


def with_defaults(args: argparse.Namespace, chosen: Any) -> argparse.Namespace:
    """All options, with the defaults of a registered class of fairseq; options of two classes are left out."""
    dataclass = getattr(chosen, "__dataclass", None)
    return argparse.Namespace(**{**(vars(dataclass()) if dataclass else {}), **vars(args)})


def needed_by(chosen: Any) -> list[str]:
    """Options of a class of fairseq's registries that have no default, or that of another option, which may be null."""
    dataclass = getattr(chosen, "__dataclass", None)
    found = [item for item in fields(dataclass) if NoneType not in get_args(item.type)] if dataclass else []
    return [item.name for item in found if item.default == MISSING or str(item.default).startswith("${")]


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
    """fairseq's start of a training, after our classes have checked its options and data; see fault 25.

    An error of other code, such as a subclass of one of our tasks, keeps its traceback.
    """
    model, task = ARCH_MODEL_REGISTRY.get(_name(cfg.model)), TASK_REGISTRY.get(_name(cfg.task))
    try:
        check_writable(cfg)
        if hasattr(task, "check_start"):  # one of ours
            task.check_start(cfg)
            if hasattr(model, "check_options"):
                model.check_options(cfg.model)
    except (ValueError, OSError) as error:
        if _is_of_others(error, task, model):
            raise
        sys.exit(f"{type(error).__name__}: {error}")  # sweeps find it in the log by the name
    fairseqs(cfg, main, **options)


def check_writable(cfg: Any) -> None:
    """Refuse a folder of the first rank's files that cannot be written to, before hours of training.

    Raises:
        PermissionError: naming the option, the folder and the remedy.
    """
    paths = {
        "--save-dir": None if cfg.checkpoint.no_save else cfg.checkpoint.save_dir,
        "--log-file": cfg.common.log_file,
        "--tensorboard-logdir": cfg.common.tensorboard_logdir,
    }
    for option, name in paths.items() if cfg.distributed_training.distributed_rank == 0 else ():
        if not name or PathManager.path_requires_pathmanager(name):
            continue
        path = Path(name).absolute()
        nearest = next(one for one in (path, *path.parents) if one.exists())
        if not os.access(nearest, os.W_OK):
            raise PermissionError(
                f"{option} {name}: {nearest} cannot be written to. Change its permissions, or name another folder."
            )


def _is_of_others(error: Exception, *classes: Any) -> bool:
    """Whether an error comes from a package of these classes that is neither ours nor fairseq's."""
    ours = {"roberta_plugin", "fairseq"}
    bases = [base for kind in classes if isinstance(kind, type) for base in kind.__mro__]
    packages = {_package(base.__module__) for base in bases} - {"builtins", "torch"} | ours
    frames = [_package(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((package for package in reversed(frames) if package in packages), "fairseq") not in ours


def _package(module: str) -> str:
    return module.partition(".")[0]


def _name(section: Any) -> Any:
    return getattr(section, "_name", None)
