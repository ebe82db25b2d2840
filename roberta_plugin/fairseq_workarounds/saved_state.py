"""Fault 32: a checkpoint with a value that no training has written is resumed, or ends in a traceback or a crash.

fairseq does not check the counts, positions, moments and options of a checkpoint. Checksums do not help if another
program has written the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from roberta_plugin.checkpoint_files import REMEDY

_RESOLVER = re.compile(r"\$\{[^${}]*:")  # of omegaconf, as in ${oc.env:NAME}, which reads a variable of the environment
_MISSING = object()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1)


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= float(value) < math.inf  # of several ranks, a tensor


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_history(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)


# Path in a checkpoint, what its value must be where there is one, and the test.
_RULES: tuple[tuple[tuple[str | int, ...], str, Callable[[Any], bool]], ...] = (
    (("task_state",), "a dictionary", _is_mapping),
    (("extra_state",), "a dictionary", _is_mapping),
    (("extra_state", "metrics"), "a list or a dictionary", lambda value: isinstance(value, Mapping | list)),
    (("extra_state", "best"), "a number", _is_number),
    (("extra_state", "val_loss"), "a number", _is_number),
    (("extra_state", "previous_training_time"), "a number of seconds", _is_time),
    (("extra_state", "patience"), "a dictionary", _is_mapping),
    (("extra_state", "patience", "best"), "a number", _is_number),
    (("extra_state", "patience", "num_runs"), "a whole number", _is_count),
    (("extra_state", "unfinished_update"), "a dictionary", _is_mapping),
    (("extra_state", "unfinished_update", "epoch"), "a whole number", _is_count),
    (("extra_state", "unfinished_update", "end_of_epoch"), "true or false", lambda value: isinstance(value, bool)),
    (("extra_state", "train_iterator"), "a dictionary", _is_mapping),
    (("extra_state", "train_iterator", "epoch"), "a whole number", _is_count),
    (("extra_state", "train_iterator", "iterations_in_epoch"), "a whole number", _is_count),
    (("extra_state", "train_iterator", "blocks_in_epoch"), "a whole number", _is_count),
    (("optimizer_history",), "a list of dictionaries", _is_history),
    (("optimizer_history", -1, "num_updates"), "a whole number", _is_count),
    (("optimizer_history", -1, "lr_scheduler_state"), "a dictionary", _is_mapping),
    (("last_optimizer_state",), "a dictionary", _is_mapping),
)
_NEEDED = {"unfinished_update": ("epoch", "end_of_epoch"), "patience": ("best", "num_runs")}


def check_state(state: Mapping[str, Any], path: Path, *, parameters: Mapping[str, torch.Tensor]) -> None:
    """Refuse a loaded checkpoint from which no training can continue. `parameters` belong to the present model.

    Raises:
        ValueError: naming the file, the entry, its value and the remedy.
    """
    for place, what, is_right in _RULES:
        value = _at(state, place)
        if value is not _MISSING and value is not None and not is_right(value):
            raise ValueError(f"{path}: {_named(place)} must be {what}, and is {_short(value)}. {REMEDY}")
    extra_state = state.get("extra_state") or {}
    for name, needed in _NEEDED.items():
        if missing := [key for key in needed if extra_state.get(name) and key not in extra_state[name]]:
            raise ValueError(f"{path}: extra_state.{name} does not have {missing[0]}. {REMEDY}")
    for name, value in state["model"].items():
        _check_weight(f"{path}: the weight {name}", value, parameters.get(name))


def _check_weight(what: str, value: object, ours: torch.Tensor | None) -> None:
    """Compare an entry of a checkpoint's model with the parameter of the present model, if it has one."""
    if not isinstance(value, torch.Tensor) or value.is_quantized or value.layout != torch.strided:
        raise ValueError(f"{what} is {_short(value)}, not a plain tensor. {REMEDY}")
    if ours is None or not ours.is_floating_point():
        return
    if not value.is_floating_point():
        raise ValueError(f"{what} has numbers of the type {value.dtype}. {REMEDY}")
    if value.dim() != ours.dim():
        raise ValueError(f"{what} has {value.dim()} dimensions, not {ours.dim()}. {REMEDY}")


def check_moments(state: Any, path: Path, *, parameters: list[torch.Tensor]) -> None:
    """Refuse moments of the optimizer that are NaN, or have no shape.

    Raises:
        ValueError: likewise.
    """
    for key, name, moment in _moments(state):
        what = f"the optimizer's {name} of parameter {key}"
        if moment.is_floating_point() and not torch.stack(torch.aminmax(moment.float())).isfinite().all():
            raise ValueError(f"{path}: {what} holds NaN or infinite numbers. {REMEDY}")
        if not moment.dim() and all(parameter.dim() for parameter in parameters):
            raise ValueError(f"{path}: {what} has no shape, as no weight of the model. {REMEDY}")


def _moments(state: Any) -> Iterator[tuple[Any, str, torch.Tensor]]:
    entries = state.get("state") if isinstance(state, Mapping) else None
    for key, entry in entries.items() if isinstance(entries, Mapping) else ():
        for name in ("exp_avg", "exp_avg_sq") if isinstance(entry, Mapping) else ():
            if isinstance(entry.get(name), torch.Tensor) and not entry[name].is_quantized:
                yield key, name, entry[name]


def check_options(config: Any, path: str) -> None:
    """Refuse options that omegaconf would replace by a variable of the environment; trainings save none.

    Raises:
        ValueError: naming the option, and not the variable's value.
    """
    remaining = [("", OmegaConf.to_container(config, resolve=False) if isinstance(config, DictConfig) else config)]
    while remaining:
        name, value = remaining.pop()
        if isinstance(value, Mapping):
            remaining += [(f"{name}.{key}".lstrip("."), each) for key, each in value.items()]
        elif isinstance(value, list | tuple):
            remaining += [(name, each) for each in value]
        elif isinstance(value, str) and _RESOLVER.search(value):
            raise ValueError(f"{path}: the option {name} is {_short(value)}, which reads the environment. {REMEDY}")


def _at(state: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        try:
            state = state[key]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return state


def _named(place: tuple[str | int, ...]) -> str:
    return ".".join(str(key) for key in place if key != -1)


def _short(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else f"{str(value)[:40]!r}"
