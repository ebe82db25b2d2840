"""Faults 7, 16, 17, 21 and 26: what a training logs, and where."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
import torch
from fairseq.logging import progress_bar
from torch import Tensor

_FAIRSEQ = r"fairseq(_cli)?\."

# Start of the message, category, module that causes it ("" for any: hydra blames fairseq's caller).
FILTERED: tuple[tuple[str, type[Warning], str], ...] = (
    ("hydra.experimental.initialize() is no longer experimental.", UserWarning, "hydra"),
    ("hydra.experimental.compose() is no longer experimental.", UserWarning, "hydra"),
    ("\nThe version_base parameter is not specified.", UserWarning, "hydra"),
    ("In 'config': Usage of deprecated keyword in package header '# @package _group_'.", UserWarning, "hydra"),
    ("\n'config' is validated against ConfigStore schema with the same name.", UserWarning, ""),
    ("\nThe strict flag in the compose API is deprecated.", UserWarning, "hydra"),
    ("'pin_memory' argument is set as true but no accelerator is found", UserWarning, r"torch\.utils\.data\."),
    ("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning, _FAIRSEQ),
    ("`torch.cuda.amp.GradScaler(args...)` is deprecated.", FutureWarning, _FAIRSEQ),
)


def filter_warnings() -> None:
    """Filter the warnings of fault 17, with the lowest priority: `python -W default` shows them again."""
    for message, category, module in FILTERED:
        warnings.filterwarnings("ignore", re.escape(message), category, module, append=True)


@functools.cache
def set_level() -> None:
    """Take back the level DEBUG in a program of fairseq that was not asked for it, once; see fault 16.

    `fairseq_import.py` keeps fairseq from setting it. fairseq-train sets up its logging before it imports fairseq; its
    other programs import it first, and get the level that they ask for.
    """
    root, level = logging.getLogger(), os.environ.get("LOGLEVEL", "INFO").upper()
    if root.level == logging.DEBUG and any(name.startswith("fairseq_cli.") for name in sys.modules):
        root.setLevel(level)


def writer_of_folder(fairseqs: Callable[..., Any], bar: Any, key: str) -> Any:
    """The TensorBoard writer of `key` ("train", "valid") in this run's folder; see fault 7."""
    return fairseqs(bar, os.path.abspath(os.path.join(bar.tensorboard_logdir, key)))


def update_wandb_config(_fairseqs: Callable[..., Any], bar: Any, config: Mapping[str, Any]) -> None:
    """fairseq's method, by which options of a resumed run may change; see fault 26."""
    if progress_bar.wandb is not None:
        progress_bar.wandb.config.update(config, allow_val_change=True)
    bar.wrapped_bar.update_config(config)


def reduce_and_log_stats(
    fairseqs: Callable[..., Any],
    trainer: Any,
    logging_outputs: Iterable[Mapping[str, Any]] | None,
    sample_size: Any,
    grad_norm: Any = None,
) -> Any:
    """Run fairseq's method with all numbers on the host; see fault 21."""
    outputs = None if logging_outputs is None else list(logging_outputs)
    together = [*(outputs or []), {"sample_size": sample_size, "grad_norm": grad_norm}]
    *numbers, rest = on_host(together)
    if torch.is_tensor(grad_norm) and grad_norm.dim() == 0:
        rest["grad_norm"] = torch.tensor(rest["grad_norm"])  # fairseq asks a tensor whether it is finite
    return fairseqs(trainer, None if outputs is None else numbers, rest["sample_size"], rest["grad_norm"])


def on_host(outputs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Replace scalar tensors in the dicts by Python numbers, with one transfer per device."""
    copies = [dict(output) for output in outputs]
    by_device: dict[torch.device, list[tuple[dict[str, Any], str, Tensor]]] = {}
    for copy in copies:
        for name, value in copy.items():
            if torch.is_tensor(value) and value.dim() == 0:
                by_device.setdefault(value.device, []).append((copy, name, value))
    for entries in by_device.values():
        values = torch.stack([value.detach().double() for _, _, value in entries]).tolist()
        for (copy, name, _), number in zip(entries, values, strict=True):
            copy[name] = number
    return copies
