"""Fault 13: checkpoints of --fp16 and --bf16 lack parts of the optimizer's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from fairseq.optim import fp16_optimizer
from torch import Tensor

from roberta_plugin.optim import master_weights

_Ordinary = fp16_optimizer._FP16OptimizerMixin
_MemoryEfficient = fp16_optimizer._MemoryEfficientFP16OptimizerMixin
_SCALER_KEY = "loss_scaler"
_fairseq_state_dict = _Ordinary.state_dict
_fairseq_load_state_dict = _Ordinary.load_state_dict
_fairseq_state_dict_memory_efficient = _MemoryEfficient.state_dict
_fairseq_load_state_dict_memory_efficient = _MemoryEfficient.load_state_dict


def state_dict(self: Any) -> dict[str, Any]:
    """fairseq's state under --fp16 and --bf16, with the fp32 master weights and the whole loss scaler."""
    state: dict[str, Any] = _fairseq_state_dict(self)
    return {**state, **_scaler_state(self.scaler), master_weights.KEY: [master.detach() for master in _masters(self)]}


def load_state_dict(self: Any, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
    """Load such a state; without saved masters, they start from the model's rounded weights."""
    _fairseq_load_state_dict(self, state_dict, optimizer_overrides)
    _load_scaler(self.scaler, state_dict)
    master_weights.restore(state_dict, [master.data for master in _masters(self)], halves=_halves(self))


def state_dict_memory_efficient(self: Any) -> dict[str, Any]:
    """fairseq's state under --memory-efficient-fp16 and -bf16, with the whole loss scaler."""
    return {**_fairseq_state_dict_memory_efficient(self), **_scaler_state(self.scaler)}


def load_state_dict_memory_efficient(
    self: Any, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None
) -> None:
    """Load such a state."""
    _fairseq_load_state_dict_memory_efficient(self, state_dict, optimizer_overrides)
    _load_scaler(self.scaler, state_dict)


def install() -> None:
    """Replace fairseq's methods."""
    _Ordinary.state_dict = state_dict
    _Ordinary.load_state_dict = load_state_dict
    _MemoryEfficient.state_dict = state_dict_memory_efficient
    _MemoryEfficient.load_state_dict = load_state_dict_memory_efficient


def _masters(optimizer: Any) -> list[Tensor]:
    """The fp32 tensors: one per parameter, or one per device if parameters are flattened."""
    masters = optimizer.fp32_params
    return list(masters.values()) if isinstance(masters, dict) else list(masters)


def _halves(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of a weight of the model and its master, in the order of `FP16Optimizer`."""
    if not isinstance(optimizer.fp32_params, dict):
        yield from (
            (half.data, master.data) for half, master in zip(optimizer.fp16_params, optimizer.fp32_params, strict=True)
        )
        return
    for device, flat in optimizer.fp32_params.items():
        of_device = [
            half for half in optimizer.fp16_params if len(optimizer.fp32_params) == 1 or half.device.index == device
        ]
        parts = torch.split(flat.data, [half.numel() for half in of_device])
        yield from ((half.data, part.view_as(half)) for half, part in zip(of_device, parts, strict=True))


def _scaler_state(scaler: Any) -> dict[str, Any]:
    """The scale and the counters that decide its next change; the settings come from the command line."""
    if scaler is None:
        return {}
    names = ("loss_scale", "_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
    return {_SCALER_KEY: {name: getattr(scaler, name) for name in names}}


def _load_scaler(scaler: Any, state: dict[str, Any]) -> None:
    if scaler is not None:
        for name, value in state.get(_SCALER_KEY, {}).items():
            setattr(scaler, name, value)
