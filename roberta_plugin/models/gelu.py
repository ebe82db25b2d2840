"""GELU after a linear layer. In trainings on a GPU, its derivative and the gradient of the bias take one kernel.

With torch's own kernels, the backward pass writes the gradient of all inputs of GELU, and reads it again to sum it up
for the bias. Triton's kernels (`gelu_kernels.py`) sum it up where they compute it, which saves a fourth of the bytes
that this step moves. For that, the product leaves the bias to GELU. Numbers are in half precision, computed in fp32:
only the rounding of results differs from torch's kernels.

They are used for batches of at least LEAST numbers, because the host needs longer to start a kernel of Triton than one
of torch's. torch.compile fuses these steps itself. torch's own kernels run where Triton is missing, or where its
kernels fail or are wrong in a trial before their first use, which the log notes. We have not run them on a GPU yet.

Shapes: M rows, N columns, P sums of rows.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.compiling import reason_of
from roberta_plugin.models.cpu import Linear

LEAST = 2**24  # numbers; of fewer, reading them takes no longer than the start of a kernel
MULTIPLE = 16  # of N: rows begin at whole reads of the kernels
TOLERANCES = {torch.bfloat16: 2**-7, torch.float16: 2**-10}  # of the trial: one step of the type
logger = logging.getLogger(__name__)


def activated(linear: Linear, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """activation(linear(x)), for `x` (..., K) -> (..., N)."""
    if activation is F.gelu and can_join(linear, x):
        product = linear.product(x, linear.weight, None)
        return _Gelu.apply(product, linear.bias)  # type: ignore[no-any-return, no-untyped-call]
    return activation(linear(x))


def can_join(linear: Linear, x: Tensor) -> bool:
    """True if Triton's kernels serve this layer's outputs, and there will be a gradient of its bias."""
    # The kernels save time in the backward pass only, and torch.compile joins these steps itself.
    if torch.compiler.is_compiling() or not x.is_cuda or not torch.is_grad_enabled():
        return False
    # The layer's own forward is not called, so an adapter or a hook would be left out.
    is_plain = linear.adapter is None and not linear._forward_hooks and not linear._forward_pre_hooks
    if not is_plain or linear.bias is None or not linear.bias.requires_grad:
        return False
    num_columns, dtype = linear.out_features, x.dtype
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    is_large = x.numel() // linear.in_features * num_columns >= LEAST and num_columns % MULTIPLE == 0
    return is_large and dtype in TOLERANCES and is_served(x.device, dtype)


@cache
def is_served(device: torch.device, dtype: torch.dtype) -> bool:
    """True if Triton is installed, and its kernels compute on this device what torch's do. Waits for the device."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        has_failed = "differ from torch's" if differ(device, dtype) else ""
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of the compiler, of anything that it calls, or of a driver
        has_failed = f"do not work here ({reason_of(error)})"
    if has_failed:
        logger.warning(f"Triton's kernels of GELU {has_failed}; torch's own are used: correct but a little slower.")
    return not has_failed


@torch.no_grad()
def differ(device: torch.device, dtype: torch.dtype) -> bool:
    """Run both kernels on a few numbers. True if they differ from the definition by more than rounding."""
    x = torch.linspace(-6, 6, 130 * 32, device=device).to(dtype).view(130, 32)
    gradient, bias = x.flip(0), torch.linspace(-1, 1, 32, device=device).to(dtype)
    with torch.enable_grad():
        summed = (x.float() + bias.float()).requires_grad_()
        expected = F.gelu(summed)
        (of_x,) = torch.autograd.grad(expected, summed, gradient.float())
    found, (found_of_x, sums) = gelu_of_sum(x, bias), gelu_of_sum_backward(gradient, x, bias)
    tolerance = TOLERANCES[dtype]
    pairs = ((found, expected, tolerance), (found_of_x, of_x, tolerance), (sums.sum(0), of_x.sum(0), 1e-4))
    return not all(torch.allclose(a.float(), b, rtol=by, atol=10 * by) for a, b, by in pairs)


def gelu_of_sum(x: Tensor, bias: Tensor) -> Tensor:
    """`x` (M, N), `bias` (N,) -> GELU(x + bias) (M, N)."""
    operators()
    output: Tensor = torch.ops.roberta_plugin.gelu(x, bias)
    return output


def gelu_of_sum_backward(gradient: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """dL/dGELU (M, N), `x` (M, N), `bias` (N,) -> dL/dx (M, N), and its sums over some rows each (P, N), in fp32."""
    operators()
    of_x, sums = torch.ops.roberta_plugin.gelu_backward(gradient, x, bias)
    return of_x, sums


@cache
def operators() -> torch.library.Library:
    """Make torch's operators of the kernels, which fake tensors have too; they exist as long as the result."""
    kernels: Any = importlib.import_module("roberta_plugin.models.gelu_kernels")
    library = torch.library.Library("roberta_plugin", "FRAGMENT")
    library.define("gelu(Tensor x, Tensor bias) -> Tensor")
    library.define("gelu_backward(Tensor gradient, Tensor x, Tensor bias) -> (Tensor, Tensor)")
    for device in ("CUDA", "CPU"):  # on a CPU, by Triton's interpreter
        library.impl("gelu", kernels.forward, device)
        library.impl("gelu_backward", kernels.backward, device)

    def fake_backward(gradient: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(x), x.new_empty(kernels.num_programs(x.size(0)), x.size(1), dtype=torch.float32)

    torch.library.register_fake("roberta_plugin::gelu", lambda x, bias: torch.empty_like(x), lib=library)
    torch.library.register_fake("roberta_plugin::gelu_backward", fake_backward, lib=library)
    return library


class _Gelu(torch.autograd.Function):
    """GELU(x + bias) of `x` (..., N) and `bias` (N,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, bias)
        return gelu_of_sum(x.flatten(0, -2).contiguous(), bias).view(x.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, bias = ctx.saved_tensors
        rows = x.flatten(0, -2).contiguous()
        of_x, sums = gelu_of_sum_backward(gradients[0].reshape(rows.shape).contiguous(), rows, bias)
        return of_x.view(x.shape), sums.sum(dim=0).to(bias.dtype)
