"""Faults 13, 14, 20 and 33: optimizers in half precision lose parts of their state or sums, or scale badly.

**Sums of gradients** (20). fairseq lets the gradients of --update-freq batches add up in the model's half-precision
tensors. bf16 has 8 bits, so a sum of many batches rounds additions away: 1.2 % of the gradient is lost at 128 batches,
3 % at 1,024. Here they add up in the fp32 gradients of the master weights, which fairseq has anyway.
(--memory-efficient-bf16 and -fp16 have no such gradients, and keep fairseq's sums.)

Where several ranks train, the wrapper around the model adds up gradients among the ranks within the last backward pass,
in half precision. So the sum of the earlier batches is rounded once and put in place for that pass. The task says which
pass that is (`before_backward`); other tasks than ours keep fairseq's sums there.

The copies between the model's parameters and their masters are fused over all parameters, too: 4 launches an update on
a GPU instead of 800.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.optim import fp16_optimizer
from torch import Tensor

from roberta_plugin.optim import master_weights

Ordinary = fp16_optimizer._FP16OptimizerMixin
MemoryEfficient = fp16_optimizer._MemoryEfficientFP16OptimizerMixin
_SCALER_KEY = "loss_scaler"
_AMP_KEY = "grad_scaler"
SCALE_WINDOW = 256  # updates; the one after the loss scale has grown may overflow and be lost


def init_optimizer(fairseqs: Callable[..., None], optimizer: Any, cfg: Any, *args: Any, **options: Any) -> None:
    """Make the wrapper; without --fp16-scale-window, the loss scale grows after `SCALE_WINDOW` updates at least."""
    fairseqs(optimizer, cfg, *args, **options)
    if optimizer.scaler is not None and getattr(cfg.common, "fp16_scale_window", None) is None:
        optimizer.scaler.scale_window = max(SCALE_WINDOW, optimizer.scaler.scale_window)


def state_dict(fairseqs: Callable[..., dict[str, Any]], optimizer: Any) -> dict[str, Any]:
    """fairseq's state under --fp16 and --bf16, with the fp32 master weights and the whole loss scaler."""
    masters = {master_weights.KEY: [master.detach() for master in _masters(optimizer)]}
    return {**state_dict_memory_efficient(fairseqs, optimizer), **masters}


def load_state_dict(
    fairseqs: Callable[..., None], optimizer: Any, state_dict: dict[str, Any], optimizer_overrides: Any = None
) -> None:
    """Load such a state; without saved masters, they start from the model's rounded weights."""
    load_state_dict_memory_efficient(fairseqs, optimizer, state_dict, optimizer_overrides)
    masters = [master.data for master in _masters(optimizer)]
    master_weights.restore(state_dict, masters, halves=_parameters(optimizer))


def state_dict_memory_efficient(fairseqs: Callable[..., dict[str, Any]], optimizer: Any) -> dict[str, Any]:
    """fairseq's state under --memory-efficient-fp16 and -bf16, with the whole loss scaler."""
    names = ("loss_scale", "_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
    scaler = optimizer.scaler
    state = {} if scaler is None else {_SCALER_KEY: {name: getattr(scaler, name) for name in names}}
    return {**fairseqs(optimizer), **state}


def load_state_dict_memory_efficient(
    fairseqs: Callable[..., None], optimizer: Any, state_dict: dict[str, Any], optimizer_overrides: Any = None
) -> None:
    """Load such a state."""
    fairseqs(optimizer, state_dict, optimizer_overrides)
    if optimizer.scaler is not None:
        for name, value in state_dict.get(_SCALER_KEY, {}).items():
            setattr(optimizer.scaler, name, value)


def amp_step(fairseqs: Callable[..., None], optimizer: Any) -> None:
    """Update the parameters under --amp; `clip_grad_norm` has already unscaled the gradients."""
    optimizer.scaler.step(optimizer.optimizer)  # the object that the scaler unscaled; fairseq passes its wrapper
    optimizer.scaler.update()


def amp_state_dict(fairseqs: Callable[..., dict[str, Any]], optimizer: Any) -> dict[str, Any]:
    """The state of the optimizer that --amp wraps, with the loss scaler's."""
    return {**optimizer.fp32_optimizer.state_dict(), _AMP_KEY: optimizer.scaler.state_dict()}


def amp_load_state_dict(
    fairseqs: Callable[..., None], optimizer: Any, state_dict: dict[str, Any], optimizer_overrides: Any = None
) -> None:
    """Load such a state; without a saved loss scale, the initial one stays."""
    optimizer.fp32_optimizer.load_state_dict(state_dict, optimizer_overrides)
    if optimizer.scaler.is_enabled() and state_dict.get(_AMP_KEY):
        optimizer.scaler.load_state_dict(state_dict[_AMP_KEY])


def before_backward(optimizer: Any, model: Any) -> None:
    """Tell the optimizer whether the coming backward pass all-reduces gradients; the model's wrapper knows."""
    if isinstance(optimizer, Ordinary):
        optimizer.adds_up_among_ranks = adds_up_among_ranks(model)


def adds_up_among_ranks(model: Any) -> bool | None:
    """True if the wrapper all-reduces during backward; None if unknown."""
    if not has_ranks():
        return False
    answer = getattr(model, "require_backward_grad_sync", None)  # torch's DistributedDataParallel
    if answer is None and hasattr(model, "accumulate_grads"):  # fairseq's legacy_ddp: afterwards, by all_reduce_grads
        return not model.accumulate_grads
    return None if answer is None else bool(answer)


def has_ranks() -> bool:
    """True if several processes train together."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def backward(fairseqs: Callable[..., None], optimizer: Any, loss: Tensor) -> None:
    """Move the gradients of earlier batches to the fp32 sum, then run fairseq's backward pass."""
    adds_up = getattr(optimizer, "adds_up_among_ranks", None if has_ranks() else False)
    if adds_up is not None:
        if optimizer._needs_sync:
            _add_to_sum(optimizer)
        if adds_up and getattr(optimizer, "_has_sum", False):
            _put_sum_in_place(optimizer)
    fairseqs(optimizer, loss)


@torch.no_grad()
def sync_gradients(fairseqs: Callable[..., None], optimizer: Any) -> None:
    """Add the remaining gradients to the fp32 sum, or create it from them."""
    if optimizer._needs_sync:
        _add_to_sum(optimizer, keep=True)


@torch.no_grad()
def sync_parameters(fairseqs: Callable[..., None], optimizer: Any) -> None:
    """Round the masters into the model's parameters."""
    pairs = list(_parameters(optimizer))
    torch._foreach_copy_([half for half, _ in pairs], [master for _, master in pairs])


def zero_grad(fairseqs: Callable[..., None], optimizer: Any) -> None:
    """Remove the gradients and empty the sum.

    As fairseq does, but bf16's factor is also reset to 1: fairseq resets it only if the optimizer does not scale
    gradients itself.
    """
    for half in optimizer.fp16_params:
        half.grad = None
    totals = [master.grad for master in _masters(optimizer) if master.grad is not None]
    if totals:
        torch._foreach_zero_(totals)
    optimizer._needs_sync = optimizer._has_sum = False
    optimizer._multiply_factor = 1.0 if optimizer.scaler is None else 1.0 / float(optimizer.scaler.loss_scale)


@torch.no_grad()
def _add_to_sum(optimizer: Any, *, keep: bool = False) -> None:
    """Add the model's gradients to the fp32 sum, and remove them unless `keep`; the first ones become the sum."""
    pairs = list(_gradients(optimizer))
    additions = [(half.grad, total) for half, total in pairs if half.grad is not None]
    missing = [total for half, total in pairs if half.grad is None]
    gradients, totals = [gradient for gradient, _ in additions], [total for _, total in additions]
    has_sum = getattr(optimizer, "_has_sum", False)
    if totals:
        (torch._foreach_add_ if has_sum else torch._foreach_copy_)(totals, gradients)
    if missing and not has_sum:
        torch._foreach_zero_(missing)
    if not keep:
        for half, _ in pairs:
            half.grad = None
    optimizer._has_sum, optimizer._needs_sync = True, False


@torch.no_grad()
def _put_sum_in_place(optimizer: Any) -> None:
    """Make the rounded sum the model's gradients, to which the next backward pass adds."""
    for half, total in _gradients(optimizer):
        half.grad = total.to(half.dtype)
    optimizer._has_sum = False


def _masters(optimizer: Any) -> list[Tensor]:
    """The fp32 tensors: one per parameter, or one per device if parameters are flattened."""
    masters = optimizer.fp32_params
    return list(masters.values()) if isinstance(masters, dict) else list(masters)


def _parameters(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Each parameter of the model, and its master, or its part of the flat one."""
    for half, master, part in _pairs(optimizer):
        if half.requires_grad or optimizer.has_flat_params:
            yield half.data, part(master.data).view_as(half)


def _gradients(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Each trained parameter of the model, and the gradient of its master, or its part of the flat one."""
    for half, master, part in _pairs(optimizer):
        if half.requires_grad:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            yield half, part(master.grad).view_as(half)


def _pairs(optimizer: Any) -> Iterator[tuple[Tensor, Tensor, Any]]:
    """Each parameter, the tensor with its master, and the slice of its part, in fairseq's layout."""
    if not isinstance(optimizer.fp32_params, dict):
        for half, master in zip(optimizer.fp16_params, optimizer.fp32_params, strict=True):
            yield half, master, lambda tensor: tensor
        return
    for device, flat in optimizer.fp32_params.items():
        offset = 0
        for half in optimizer.fp16_params:
            if len(optimizer.fp32_params) == 1 or half.device.index == device:
                at = slice(offset, offset + half.numel())
                yield half, flat, lambda tensor, at=at: tensor[at]
                offset = at.stop
