"""Matrix products in FP8 (--fp8-products), which GPUs since Hopper make twice as fast as in bf16.

As in Micikevicius et al. 2022, "FP8 Formats for Deep Learning": inputs and weights are rounded to e4m3 (largest value
448), gradients to e5m2 (57,344), each matrix divided by a scale that brings its largest absolute value to the format's
own. The scale is found anew for every product; sums are in fp32, and the result has the type of the input.
Weights, gradients and the optimizer's state are what they are without this option, and so are checkpoints.

On a CPU the same rounded values are multiplied in fp32: slower than without, for tests and rehearsals.

Shapes: M rows, K inputs, N outputs; P, Q and R stand for any of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.cpu.linear import Linear

OF_VALUES, OF_GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # of the sizes of matrices that GPUs multiply in FP8
AUTOCASTS = ("cpu", "cuda")  # types of devices; torch.amp.is_autocast_available would split a graph of older torch
CAPABILITY = (8, 9)  # of CUDA devices that can: Ada, Hopper and later


class Rounded(NamedTuple):
    """A matrix in FP8, and the factor () in fp32 that its values have to be multiplied by."""

    values: Tensor
    scale: Tensor

    def t(self) -> Rounded:
        """The transposed matrix."""
        return Rounded(self.values.t(), self.scale)


def rounded(matrix: Tensor, dtype: torch.dtype) -> Rounded:
    """The matrix in FP8. Infinities and NaN become NaN, so that a training that diverges is noticed as without FP8."""
    largest = torch.finfo(dtype).max
    scale = (matrix.abs().amax().float() / largest).clamp(min=torch.finfo(torch.float32).tiny)
    values = (matrix.float() / scale).clamp(-largest, largest)  # clamped: the quotient may round up beyond it
    return Rounded(values.to(dtype), scale)


def product(a: Rounded, b: Rounded, dtype: torch.dtype, *, fast_sums: bool) -> Tensor:
    """a b^T for `a` (P, Q) and `b` (R, Q) -> (P, R) in `dtype`.

    Args:
        a: the left factor.
        b: the right factor.
        dtype: of the result.
        fast_sums: whether a GPU may round within the sum, which is faster, and precise enough in the forward pass.
    """
    if a.values.device.type == "cuda":
        return scaled_mm(a, b, dtype, fast_sums=fast_sums)
    with torch.autocast("cpu", enabled=False):  # in fp16, sums of values up to 448 x 448 would overflow
        sums = a.values.float() @ b.values.float().t()
    return (sums * (a.scale * b.scale)).to(dtype)


def scaled_mm(a: Rounded, b: Rounded, dtype: torch.dtype, *, fast_sums: bool) -> Tensor:
    """The same by torch's operator, which wants the left factor row by row and the right one column by column."""
    left, right = _dense(a.values), _dense(b.values).t()
    return torch._scaled_mm(left, right, a.scale, b.scale, out_dtype=dtype, use_fast_accum=fast_sums)


def _dense(values: Tensor) -> Tensor:
    """(P, Q) -> the same row by row, with columns of 0 up to a multiple of 16."""
    lacking = -values.size(1) % MULTIPLE
    if lacking:
        values = F.pad(values.contiguous().view(torch.uint8), (0, lacking)).view(values.dtype)
    return values.contiguous()


def fp8_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` of `x` (..., K), `weight` (N, K), `bias` (N,) -> (..., N) by products in FP8, with its derivatives."""
    kind = x.device.type
    if kind in AUTOCASTS and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    if x.numel() == 0:
        return F.linear(x, weight, bias)
    output: Tensor = _Fp8Product.apply(x.flatten(0, -2), weight)  # type: ignore[no-untyped-call]
    output = output.view(*x.shape[:-1], output.size(-1))
    return output if bias is None else output + bias


class Fp8Linear(Linear):
    """A linear layer whose products are in FP8 while it is trained; validation and inference are as without."""

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(..., K) -> (..., N)."""
        return fp8_linear(x, weight, bias) if self.training else super().product(x, weight, bias)


class _Fp8Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        left, right = rounded(x, OF_VALUES), rounded(weight, OF_VALUES)
        ctx.save_for_backward(*left, *right)  # a byte for each value
        ctx.dtypes = x.dtype, weight.dtype
        return product(left, right, x.dtype, fast_sums=True)  # (M, K), (N, K) -> (M, N)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, x_scale, weight, weight_scale = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        x_dtype, weight_dtype = ctx.dtypes
        gradient = rounded(gradients[0], OF_GRADIENTS)  # (M, N)
        x_grad = weight_grad = None
        if needs_x:  # (M, N), (K, N) -> (M, K)
            x_grad = product(gradient, Rounded(weight, weight_scale).t(), x_dtype, fast_sums=False)
        if needs_weight:  # (N, M), (K, M) -> (N, K)
            weight_grad = product(gradient.t(), Rounded(x, x_scale).t(), weight_dtype, fast_sums=False)
        return x_grad, weight_grad


def check_device(device: torch.device) -> None:
    """Refuse a device that cannot multiply in FP8; a CPU can, slowly.

    Raises:
        ValueError: naming the device and what would do.
    """
    if device.type == "cpu":
        return
    if device.type != "cuda" or torch.version.hip is not None:
        raise ValueError(
            f"--fp8-products: FP8 on a device of type {_kind(device)} is not supported. Leave the option out."
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        found, wanted = (".".join(map(str, version)) for version in (capability, CAPABILITY))
        raise ValueError(
            f"--fp8-products: {torch.cuda.get_device_name(device)} has CUDA capability {found} and cannot multiply in "
            f"FP8; {wanted} or newer can (RTX 4090, L40S, H100, H200, B200). Leave the option out."
        )


def _kind(device: torch.device) -> str:
    return "cuda (ROCm)" if device.type == "cuda" else device.type
