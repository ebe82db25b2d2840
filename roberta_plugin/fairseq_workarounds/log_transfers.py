"""Fault 21: fairseq reads logged numbers from the GPU one by one, and waits for the GPU each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from fairseq.trainer import Trainer
from torch import Tensor

from roberta_plugin.fairseq_workarounds.training_loop import wrap


def reduce_and_log_stats(
    fairseqs: Callable[..., Any],
    trainer: Any,
    logging_outputs: Iterable[Mapping[str, Any]] | None,
    sample_size: Any,
    grad_norm: Any = None,
) -> Any:
    """Run fairseq's method with all numbers on the host."""
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
    for found in by_device.values():
        values = torch.stack([value.detach().double() for _, _, value in found]).tolist()
        for (copy, name, _), number in zip(found, values, strict=True):
            copy[name] = number
    return copies


def install() -> None:
    """Wrap fairseq's method."""
    wrap(Trainer, "_reduce_and_log_stats", reduce_and_log_stats)
