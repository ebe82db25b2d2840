"""Fault 20: --bf16 and --fp16 add up the gradients of an update's batches in half precision.

fairseq lets the gradients of --update-freq batches add up in the model's half-precision tensors. bf16 has 8 bits, so
a sum of many batches rounds additions away: 1.2 % of the gradient is lost at 128 batches, 3 % at 1,024. Here they
add up in the fp32 gradients of the master weights, which fairseq has anyway. (--memory-efficient-bf16 and -fp16
have no such gradients, and keep fairseq's sums.)

Where several ranks train, the wrapper around the model adds up gradients among the ranks within the last backward pass,
in half precision. So the sum of the earlier batches is rounded once and put in place for that pass. The task says which
pass that is (`before_backward`); other tasks than ours keep fairseq's sums there.

The copies between the model's parameters and their masters are fused over all parameters, too: 4 launches an update on
a GPU instead of 800.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from fairseq.optim import fp16_optimizer
from torch import Tensor

_Ordinary = fp16_optimizer._FP16OptimizerMixin
_fairseq_backward = _Ordinary.backward


def before_backward(optimizer: Any, model: Any) -> None:
    """Tell the optimizer whether the coming backward pass all-reduces gradients; the model's wrapper knows."""
    if isinstance(optimizer, _Ordinary):
        optimizer.adds_up_among_ranks = adds_up_among_ranks(model)


def adds_up_among_ranks(model: Any) -> bool | None:
    """Whether the wrapper all-reduces during backward; None if unknown."""
    if not has_ranks():
        return False
    answer = getattr(model, "require_backward_grad_sync", None)  # torch's DistributedDataParallel
    if answer is None and hasattr(model, "accumulate_grads"):  # fairseq's legacy_ddp: afterwards, by all_reduce_grads
        return not model.accumulate_grads
    return None if answer is None else bool(answer)


def backward(self: Any, loss: Tensor) -> None:
    """Move the gradients of earlier batches to the fp32 sum, then run fairseq's backward pass."""
    adds_up = getattr(self, "adds_up_among_ranks", None if has_ranks() else False)
    if adds_up is not None:
        if self._needs_sync:
            _add_to_sum(self)
        if adds_up and getattr(self, "_has_sum", False):
            _put_sum_in_place(self)
    _fairseq_backward(self, loss)


@torch.no_grad()
def sync_gradients(self: Any) -> None:
    """Add the remaining gradients to the fp32 sum, or create it from them."""
    if not self._needs_sync:
        return
    _add_to_sum(self, keep=True)


@torch.no_grad()
def sync_parameters(self: Any) -> None:
    """Round the masters into the model's parameters."""
    pairs = list(_parameters(self))
    torch._foreach_copy_([half for half, _ in pairs], [master for _, master in pairs])


def zero_grad(self: Any) -> None:
    """Remove the gradients and empty the sum.

    As fairseq does, but bf16's factor is also reset to 1: fairseq resets it only if the optimizer does not scale
    gradients itself.
    """
    for half in self.fp16_params:
        half.grad = None
    totals = [master.grad for master in _masters(self) if master.grad is not None]
    if totals:
        torch._foreach_zero_(totals)
    self._needs_sync = self._has_sum = False
    self._multiply_factor = 1.0 if self.scaler is None else 1.0 / float(self.scaler.loss_scale)


def install() -> None:
    """Put these methods in the place of fairseq's."""
    _Ordinary.backward = backward
    _Ordinary.zero_grad = zero_grad
    _Ordinary._sync_fp16_grads_to_fp32 = sync_gradients
    _Ordinary._sync_fp32_params_to_fp16 = sync_parameters


def has_ranks() -> bool:
    """Whether several processes train together."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


@torch.no_grad()
def _add_to_sum(optimizer: Any, *, keep: bool = False) -> None:
    """Add the model's gradients to the fp32 sum, and remove them unless `keep`; the first ones become the sum."""
    pairs = list(_gradients(optimizer))
    found = [(half.grad, total) for half, total in pairs if half.grad is not None]
    missing = [total for half, total in pairs if half.grad is None]
    gradients, totals = [gradient for gradient, _ in found], [total for _, total in found]
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


def _gradients(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Each trained parameter of the model, and the gradient of its master, or its part of the flat one."""
    for half, master, part in _pairs(optimizer):
        if half.requires_grad:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            yield half, part(master.grad).view_as(half)


def _parameters(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    for half, master, part in _pairs(optimizer):
        if half.requires_grad or optimizer.has_flat_params:
            yield half.data, part(master.data).view_as(half)


def _masters(optimizer: Any) -> list[Tensor]:
    masters = optimizer.fp32_params
    return list(masters.values()) if isinstance(masters, dict) else list(masters)


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
