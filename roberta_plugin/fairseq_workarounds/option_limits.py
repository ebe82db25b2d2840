"""Fault 30: values of fairseq's own options that no training can use, which fairseq takes.

Some end in a traceback of numpy or torch; with others, such as `--distributed-world-size 0`, nothing is trained and the
exit code is 0. `LIMITS` has the smallest and the largest value of each option. Every road to a training passes here:
fairseq-train, `roberta pretrain`, recipes and grid files.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY

_OF_ANOTHER = re.compile(r"\$\{\w+\.(\w+)\}")  # an option whose default is another one
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_COUNT = 2**31 - 1  # fairseq and numpy keep most counts in 32 bits
_SEED = 2**32 - 1  # of numpy's generators
_FLOAT = torch.finfo(torch.float32).max


class Limit(NamedTuple):
    """An option of fairseq's config, by its section, with its smallest and largest value."""

    section: str
    name: str
    smallest: float
    largest: float = _COUNT


LIMITS = (
    Limit("common", "seed", 0, _SEED),
    Limit("common", "log_interval", 1),
    Limit("common", "empty_cache_freq", 0),
    Limit("common", "fp16_init_scale", 1),
    Limit("common", "fp16_scale_window", 1),
    Limit("common", "fp16_scale_tolerance", 0, 1),
    Limit("common", "min_loss_scale", 0, _FLOAT),
    Limit("common", "amp_init_scale", 1),
    Limit("common", "amp_scale_window", 1),
    Limit("common", "amp_batch_retries", 0),
    Limit("distributed_training", "distributed_world_size", 1, 2**20),
    Limit("distributed_training", "distributed_rank", 0, 2**20),
    Limit("distributed_training", "distributed_port", -1, 2**16 - 1),
    Limit("distributed_training", "nprocs_per_node", 1, 2**20),
    Limit("distributed_training", "bucket_cap_mb", 1),
    Limit("dataset", "num_workers", 0, 1024),
    Limit("dataset", "batch_size", 1),
    Limit("dataset", "batch_size_valid", 1),
    Limit("dataset", "max_tokens", 1),
    Limit("dataset", "max_tokens_valid", 1),
    Limit("dataset", "required_batch_size_multiple", 1),
    Limit("dataset", "required_seq_len_multiple", 1),
    Limit("dataset", "data_buffer_size", 0, 2**20),
    Limit("dataset", "validate_interval", 1),
    Limit("dataset", "validate_interval_updates", 0),
    Limit("dataset", "validate_after_updates", 0),
    Limit("dataset", "max_valid_steps", 0),
    Limit("dataset", "fixed_validation_seed", 0, _SEED),
    Limit("dataset", "curriculum", 0),
    Limit("optimization", "max_update", 0, 2**53),
    Limit("optimization", "max_epoch", 0, 2**53),
    Limit("optimization", "stop_time_hours", 0, _FLOAT),
    Limit("optimization", "stop_min_lr", -1, _FLOAT),
    Limit("optimization", "clip_norm", 0, math.inf),
    Limit("optimization", "update_freq", 1),
    Limit("optimization", "lr", 0, _FLOAT),
    Limit("checkpoint", "save_interval", 1),
    Limit("checkpoint", "save_interval_updates", 0),
    Limit("checkpoint", "keep_interval_updates", -1),
    Limit("checkpoint", "keep_interval_updates_pattern", -1),
    Limit("checkpoint", "keep_last_epochs", -1),
    Limit("checkpoint", "keep_best_checkpoints", -1),
    Limit("checkpoint", "patience", -1),
    Limit("checkpoint", "checkpoint_shard_count", 1),
    Limit("lr_scheduler", "total_num_update", 1, 2**53),
    Limit("lr_scheduler", "warmup_updates", 0, 2**53),
    Limit("lr_scheduler", "force_anneal", 0),
    Limit("lr_scheduler", "lr_patience", 0),
    Limit("optimizer", "weight_decay", 0, _FLOAT),
    Limit("optimizer", "adam_eps", 0, _FLOAT),
    Limit("ema", "ema_decay", 0, 1),
    Limit("ema", "ema_start_update", 0),
    Limit("ema", "ema_update_freq", 1),
)
_NOT_ZERO = ("keep_interval_updates_pattern",)  # fairseq divides by it; -1 means no interval


def check_limits(cfg: Any) -> None:
    """Refuse values outside of `LIMITS`, and options that this environment does not support.

    `cfg` is fairseq's config, or the namespace of its command line, which has no sections.

    Raises:
        ValueError: naming the option, its limits and the value; or the missing package.
    """
    for limit in LIMITS:
        value = _value(cfg, limit.section, limit.name)
        if value is None or str(value).startswith("${"):  # a task's config of its own, without the one around it
            continue
        for number in [value] if isinstance(value, int | float | str) else value:
            _check(limit, number)
    if _value(cfg, "checkpoint", "write_checkpoints_asynchronously") and importlib.util.find_spec("iopath") is None:
        raise ValueError(
            "--write-checkpoints-asynchronously needs the package iopath, without which fairseq trains nothing: "
            "`pip install iopath`, or leave the option out."
        )


def _check(limit: Limit, value: Any) -> None:
    option = f"--{limit.name.replace('_', '-')}"
    try:
        number = float(value)  # the namespace has some as text
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if math.isnan(number) or number < limit.smallest:
        raise ValueError(f"{option} must be {limit.smallest:g} or more, got {number:g}.")
    if number > limit.largest:
        raise ValueError(f"{option} must be at most {_shown(limit.largest)}, got {_shown(number)}.")
    if limit.name in _NOT_ZERO and number == 0:
        raise ValueError(f"{option} must be -1, or 1 or more, got 0.")


def _shown(number: float) -> str:
    return f"{number:.0f}" if abs(number) < 1e12 and number == round(number) else f"{number:g}"


def _value(cfg: Any, section: str, name: str) -> Any:
    return getattr(getattr(cfg, section, None), name, getattr(cfg, name, None))


def check_schedule(cfg: Any) -> None:
    """Refuse options with which the learning-rate scheduler cannot be made or begun, by trying it.

    `cfg` is fairseq's config, or the namespace of its command line.

    Raises:
        ValueError: with the reason of the scheduler, which may be an assertion or a division by 0.
    """
    name, options = _schedule(cfg)
    kind = LR_SCHEDULER_REGISTRY.get(name)
    if kind is None or name == "pass_through":  # which asks the optimizer
        return
    optimizer = FairseqOptimizer(argparse.Namespace())
    optimizer._optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    try:
        scheduler = kind(argparse.Namespace(**options), optimizer)
        for update in (0, 1, 2):
            scheduler.step_begin_epoch(1)
            scheduler.step_update(update)
    except (AssertionError, ArithmeticError, ValueError, SyntaxError) as error:
        reason = str(error).strip().rstrip(".") or f"an {type(error).__name__} of fairseq's"
        if isinstance(error, ZeroDivisionError):
            reason = "a number of updates that it divides by is 0"
        names = vars(_defaults(kind))
        given = {key: value for key, value in options.items() if key in names and value is not None}
        shown = " ".join(f"--{key.replace('_', '-')} {value!s:.40}" for key, value in given.items() if key != "_name")
        raise ValueError(f"--lr-scheduler {name} cannot begin with {shown}: {reason}.") from error


def _schedule(cfg: Any) -> tuple[str, dict[str, Any]]:
    """Name and options of the scheduler; those that are another option's value by default have that value."""
    section = getattr(cfg, "lr_scheduler", None)
    if isinstance(section, Mapping):
        return str(section.get("_name")), {str(key): section[key] for key in section}
    if not isinstance(section, str):  # of a scheduler without a dataclass, or none
        return str(getattr(section, "_name", "")), dict(vars(section)) if section else {}
    options = {**vars(_defaults(LR_SCHEDULER_REGISTRY.get(section))), **vars(cfg)}
    for key, value in options.items():
        if isinstance(value, str) and (match := _OF_ANOTHER.fullmatch(value)):
            options[key] = value = options.get(match[1])
        if isinstance(value, str) and _NUMBER.fullmatch(value):  # fairseq's parser leaves the text of such an option
            options[key] = float(value)
    return section, options


def _defaults(kind: Any) -> Any:
    """The options of a scheduler with their defaults; older ones have no dataclass."""
    return (getattr(kind, "__dataclass", None) or argparse.Namespace)()
