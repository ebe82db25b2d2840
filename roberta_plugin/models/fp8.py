"""Products of a training in 8-bit floating point, on Hopper GPUs (`--fp8-products`): twice as fast there as bf16.

    forward    x W^T      x and W in e4m3, with a scale for each row of both
    backward   dL/dx      the gradient and W in e4m3, likewise
               dL/dW      in bf16: it adds up over all tokens of a batch, and its rounding would reach the weights

Sums are in fp32, results in bf16. This is torchao's recipe "rowwise_with_gw_hp" by torch's own operator. Where layers
are compiled (`--compile-layers`), rounding to fp8 is one kernel. The last layer and the heads stay in bf16, and so do
answers and validations. Weights, checkpoints and exports are as without this option.

Shapes: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from roberta_plugin.models.cpu import Linear

E4M3 = torch.float8_e4m3fn
LARGEST = torch.finfo(E4M3).max
MULTIPLE = 16  # of K and N, in torch's operator
TINY = 1e-12  # keeps a row of zeros from a scale of 0
OPTION = "--fp8-products"
logger = logging.getLogger(__name__)


class Fp8Linear(Linear):
    """A linear layer whose training products are in fp8; its parameters are as in any linear layer."""

    @override
    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not self.training or x.dtype != torch.bfloat16:
            return super().product(x, weight, bias)
        rows: Tensor = _Product.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
        output: Tensor = rows.unflatten(0, x.shape[:-1])
        return output


def use_fp8(layers: Iterable[nn.Module]) -> None:
    """Let the linear layers in all but the last of these layers multiply in fp8."""
    *first, last = dict.fromkeys(layers)
    kept = set(last.modules())  # a part may be shared with it
    for layer in first:
        for module in layer.modules():
            if type(module) is Linear and module not in kept:
                module.__class__ = Fp8Linear


def check_sizes(*sizes: int) -> None:
    """Refuse sizes of a model for which the operator has no product."""
    wrong = [size for size in sizes if size % MULTIPLE]
    if wrong:
        raise ValueError(
            f"{OPTION} needs --encoder-embed-dim and --encoder-ffn-embed-dim to be multiples of {MULTIPLE}, and "
            f"{wrong[0]} is none: change it, or leave {OPTION} out."
        )


def check_device(device: torch.device, dtype: torch.dtype, *, is_compiled: bool) -> None:
    """Refuse a training that has no such products, before its first update; warn of one that is no faster by them."""
    if device.type != "cuda":
        raise ValueError(
            f"{OPTION} needs an H100 or a newer GPU, and this training is on {device.type!r}: leave it out."
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < (9, 0):
        found = ".".join(map(str, capability))
        raise ValueError(
            f"{OPTION} needs a GPU of compute capability 9.0 (H100) or more, and this one has {found}: leave it out."
        )
    if dtype != torch.bfloat16:
        raise ValueError(
            f"{OPTION} goes with --bf16, and the weights are in {str(dtype).removeprefix('torch.')}: add --bf16."
        )
    if not is_compiled:
        logger.warning(
            f"{OPTION} without --compile-layers: rounding to fp8 takes several kernels, and more time than the "
            "products save. Add --compile-layers."
        )


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (M, K) -> the same in e4m3, without gaps, and their scales (M, 1) in fp32, by which to multiply these."""
    wide = x.float()
    scales = wide.abs().amax(dim=1, keepdim=True).clamp(min=TINY) / LARGEST
    return (wide / scales).clamp(-LARGEST, LARGEST).to(E4M3, memory_format=torch.contiguous_format), scales


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (M, K), weight (N, K) -> x W^T (M, N) in bf16."""
    (rows, of_rows), (columns, of_columns) = quantized(x), quantized(weight)
    return torch._scaled_mm(
        rows, columns.t(), scale_a=of_rows, scale_b=of_columns.t(), bias=bias, out_dtype=torch.bfloat16
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0]
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            multiply(gradient, weight.t()) if needs_x else None,
            gradient.t() @ x if needs_weight else None,
            gradient.sum(dim=0) if needs_bias else None,
        )
