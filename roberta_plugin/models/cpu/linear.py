"""Linear layers in fp32 on a CPU, through the faster of the libraries that torch has.

torch multiplies fp32 matrices with MKL, which reaches half of oneDNN's speed on processors of AMD; on Intel's it is the
faster one, for the gradient of weights by a third and more. torch contains oneDNN as well, but its operator has no
derivative, which is added here.

The precision is fp32 throughout, unless torch may round (--matmul-precision medium): on processors that multiply bf16
(AVX512-BF16, AMX) the factors and results of products are then rounded to bf16, as under autocast. Tensors between
two products of an attention or feed-forward sublayer stay in bf16; the residuals, norms and losses between
sublayers are in fp32, and so are sums within a product.

Shapes: M rows, K inputs, N outputs.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roberta_plugin.machine import processor_words

SHAPES_KEPT = 128


def keep_fewer_shapes() -> None:
    """Bound the memory of a training on a CPU; before the first product of the process, and unless the user has said.

    torch and oneDNN keep what they build for each shape of a product, 1,024 each, with its memory, and nearly every
    batch has its own number of rows: a training with batches of 16,384 tokens grew to 12 GB. 128 are as fast there; 32
    cost a small model a fourth of its updates. Answers to single sentences are faster with all, and need little memory.
    """
    for variable in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(SHAPES_KEPT))


@cache
def has_onednn() -> bool:
    """Whether the installed torch can multiply through oneDNN."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def serves(*tensors: Tensor) -> bool:
    """Whether oneDNN can multiply these tensors: fp32, on the CPU, none empty, and not inside torch.compile."""
    if torch.compiler.is_compiling():
        return False
    return has_onednn() and all(t.device.type == "cpu" and t.dtype == torch.float32 and t.numel() for t in tensors)


@cache
def has_fast_bf16() -> bool:
    """Whether this processor multiplies bf16 faster than fp32."""
    capability = torch.backends.cpu.get_capabilities() if hasattr(torch.backends.cpu, "get_capabilities") else {}
    found = capability.get("avx512_bf16", False) or capability.get("amx_bf16", False)
    return has_onednn() and bool(found or processor_words("flags") & {"avx512_bf16", "amx_bf16"})


@cache
def has_fast_mkl() -> bool:
    """Whether MKL, which torch uses by itself, is faster than oneDNN in fp32: on Intel's processors."""
    return torch.backends.mkl.is_available() and "GenuineIntel" in processor_words("vendor_id")


def rounds() -> bool:
    """Whether products are made in bf16; not inside torch.compile, because this check would break its graphs."""
    if torch.compiler.is_compiling():
        return False
    return torch.get_float32_matmul_precision() == "medium" and has_fast_bf16()


def factors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors as inputs of several products: in bf16 where products are made in bf16."""
    if rounds() and serves(*tensors):
        return tuple(tensor.bfloat16() for tensor in tensors)
    return tensors


def plain_linear(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b^T + bias for `a` (M, K), `b` (N, K), `bias` (N,) -> (M, N) by the faster library; without a derivative."""
    if a.dtype != torch.float32 or has_fast_mkl():  # bf16 is multiplied by oneDNN anyway
        return F.linear(a, b, bias)
    return onednn_linear(a, b, bias)


def onednn_linear(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b^T + bias for `a` (M, K), `b` (N, K), `bias` (N,) -> (M, N); without a derivative."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(_dense(a), _dense(b), bias, "none", [], "")
    return result


def _dense(matrix: Tensor) -> Tensor:
    """The matrix without gaps between its rows or columns: with gaps, oneDNN is a thousand times slower."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, keeps_bf16: bool = False) -> Tensor:
    """`F.linear` of `x` (..., K), `weight` (N, K), `bias` (N,) -> (..., N), with its derivatives.

    Where products are made in bf16, `x` may be in bf16 as well as in fp32, and so is the result with `keeps_bf16`.
    """
    is_served = serves(x, weight) or (x.dtype == torch.bfloat16 and rounds() and x.numel() and serves(weight))
    # autocast would run F.linear in its own type
    if not is_served or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    output: Tensor = _Linear.apply(x.flatten(0, -2), weight, bias, keeps_bf16)  # type: ignore[no-untyped-call]
    return output.view(*x.shape[:-1], output.size(-1))


class Linear(nn.Linear):
    """`nn.Linear` that computes with the function above.

    Args:
        in_features: K.
        out_features: N.
        keeps_bf16: whether a result rounded to bf16 stays in bf16; for layers before another product.
    """

    def __init__(self, in_features: int, out_features: int, *, keeps_bf16: bool = False) -> None:
        super().__init__(in_features, out_features)
        self.keeps_bf16 = keeps_bf16
        self.adapter: nn.Module | None = None  # see `models/adapters.py`

    def forward(self, input: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        output = self.product(input, self.weight, self.bias)
        return output if self.adapter is None else output + self.adapter(input).to(output.dtype)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`forward` with other parameters, such as those of several layers joined."""
        return linear(x, weight, bias, keeps_bf16=self.keeps_bf16)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, keeps_bf16: bool) -> Tensor:
        ctx.x_dtype = x.dtype
        is_frozen = not ctx.needs_input_grad[1]  # then the input is not needed
        if not rounds():
            ctx.save_for_backward(None if is_frozen else x, weight)
            return plain_linear(x, weight, bias)
        x, weight = x.bfloat16(), weight.bfloat16()
        ctx.save_for_backward(None if is_frozen else x, weight)
        if keeps_bf16:
            return onednn_linear(x, weight, None if bias is None else bias.bfloat16())
        product = plain_linear(x, weight).float()
        return product if bias is None else product.add_(bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        bias_grad = gradient.sum(dim=0).float() if needs_bias else None
        gradient = gradient.to(weight.dtype)
        return (
            plain_linear(gradient, weight.t()).to(ctx.x_dtype) if needs_x else None,
            plain_linear(gradient.t(), x.t()).float() if needs_weight else None,
            bias_grad,
            None,
        )
