"""Faster training steps and predictions on a CPU; other devices use torch's own operators.

Dropout. torch draws one Bernoulli number per element, from a serial generator, which takes longer than the matmuls
around it. Here 64 random bits serve four elements, 16 bits each. The probability is rounded to a multiple of 1/65536,
and the scale follows the rounded probability, so the expectation stays exact.

Linear layers. torch multiplies fp32 matrices with MKL, which reaches half of oneDNN's speed on processors of AMD; on
Intel's, MKL is faster, for the gradient of weights by a third and more. torch contains oneDNN as well, but its operator
has no derivative, which is added here. The precision is fp32 throughout, unless torch may round (--matmul-precision
medium): on processors that multiply bf16 (AVX512-BF16, AMX) the factors and results of products are then rounded to
bf16, as under autocast. Tensors between two products of an attention or feed-forward sublayer stay in bf16; the
residuals, norms and losses between sublayers are in fp32, and so are sums within a product.

Products with trained weights in bf16 or int8, by the kernels of oneDNN that torch contains; without derivatives.
Weights are rounded and laid out for the kernels once. bf16 rounds the inputs, too. int8 has a scale for each row of the
weights, and one for each row of the input, which is found at each call (dynamic quantization): so a prediction does not
depend on the other sequences of its batch. Sums are exact, in int32.

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

LEVELS = 2**16


class Dropout(nn.Module):
    """In training, set elements to 0 with `probability` and scale the others to keep the expectation."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return dropout(x, self.probability if self.training else 0.0)

    def extra_repr(self) -> str:
        """The text for `print(model)`."""
        return f"probability={self.probability}"


def dropout(x: Tensor, probability: float) -> Tensor:
    """Dropout of `x` (any shape), always active; draws from torch's generator of the device."""
    if probability == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, probability, training=True)
    return _CpuDropout.apply(x, round(probability * LEVELS))  # type: ignore[no-any-return, no-untyped-call]


def draw_words(shape: torch.Size, generator: torch.Generator | None = None) -> Tensor:
    """16 random bits for each element, as int16 (`shape`, CPU), by torch's own generator or another one."""
    num_draws = -(-shape.numel() // 4)
    draws = torch.empty(num_draws, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return draws.view(torch.int16)[: shape.numel()].view(shape)


def kept(words: Tensor, level: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """1 for the elements that stay, 0 for those dropped, each with probability level / 65536.

    In fp32, or for values in bf16 as integers of the same size, which `keep_only` takes.
    """
    # Written in a type to multiply with: bool, and masked_fill, are several times slower on a CPU.
    dtype = torch.int16 if dtype == torch.bfloat16 else dtype
    return torch.ge(words, level - LEVELS // 2, out=torch.empty(words.shape, dtype=dtype))


def keep_only(values: Tensor, keep: Tensor) -> Tensor:
    """The values (any shape) where `keep` (the same shape) is 1, and 0 elsewhere."""
    if keep.dtype == torch.int16:  # their bits times 1 or 0, several times faster than a product in bf16
        return (values.view(torch.int16) * keep).view(values.dtype)
    return values * keep


def scale_of_kept(level: int) -> float:
    """The factor for the elements that stay."""
    return LEVELS / (LEVELS - level)


class _CpuDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, level: int) -> Tensor:
        words = draw_words(x.shape)
        ctx.save_for_backward(words)
        ctx.level = level
        return x * kept(words, level).mul_(scale_of_kept(level)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (words,) = ctx.saved_tensors
        (gradient,) = gradients
        return gradient * kept(words, ctx.level).mul_(scale_of_kept(ctx.level)).to(gradient.dtype), None


SHAPES_KEPT = 128


def keep_fewer_shapes() -> None:
    """Bound the memory of a training on a CPU, before the process's first product, unless the user has set a bound.

    torch and oneDNN keep what they build for each shape of a product, 1,024 each, with its memory, and nearly every
    batch has its own number of rows: a training with batches of 16,384 tokens grew to 12 GB. 128 are as fast there; 32
    cost a small model a fourth of its updates. Answers to single sentences are faster with all, and need little memory.
    """
    for variable in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(SHAPES_KEPT))


@cache
def has_onednn() -> bool:
    """True if the installed torch can multiply through oneDNN."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def serves(*tensors: Tensor) -> bool:
    """True if oneDNN can multiply these tensors: fp32, on the CPU, none empty, and not inside torch.compile."""
    if torch.compiler.is_compiling():
        return False
    return has_onednn() and all(t.device.type == "cpu" and t.dtype == torch.float32 and t.numel() for t in tensors)


@cache
def has_fast_bf16() -> bool:
    """True if this processor multiplies bf16 faster than fp32, and oneDNN may (ONEDNN_MAX_CPU_ISA limits it)."""
    # Not every version of torch has these two functions. Without the second one, the kernel names the instructions.
    may_use = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    if not has_onednn() or (may_use is not None and not may_use()):
        return False
    capability = torch.backends.cpu.get_capabilities() if hasattr(torch.backends.cpu, "get_capabilities") else {}
    has_bf16 = capability.get("avx512_bf16", False) or capability.get("amx_bf16", False)
    return bool(has_bf16 or processor_words("flags") & {"avx512_bf16", "amx_bf16"})


@cache
def has_fast_mkl() -> bool:
    """True if MKL, which torch uses by itself, is faster than oneDNN in fp32: on Intel's processors."""
    return torch.backends.mkl.is_available() and "GenuineIntel" in processor_words("vendor_id")


def rounds() -> bool:
    """True if products are made in bf16; not inside torch.compile, because this check would break its graphs."""
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
    # `serves` wants fp32 of all tensors; the weight always is, and only `x` may be a result that was kept in bf16.
    is_in_bf16 = x.dtype == torch.bfloat16 and rounds() and x.numel() and serves(weight)
    is_served = serves(x, weight) or is_in_bf16
    # autocast would run F.linear in its own type
    if not is_served or torch.is_autocast_enabled("cpu"):
        return F.linear(x if x.numel() else x.to(weight.dtype), weight, bias)
    output: Tensor = _Linear.apply(x.flatten(0, -2), weight, bias, keeps_bf16)  # type: ignore[no-untyped-call]
    return output.view(*x.shape[:-1], output.size(-1))


class Linear(nn.Linear):
    """`nn.Linear` that computes with the function above.

    Args:
        in_features: K.
        out_features: N.
        bias: whether there is a bias.
        keeps_bf16: whether a result rounded to bf16 stays in bf16; for layers before another product.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, keeps_bf16: bool = False) -> None:
        super().__init__(in_features, out_features, bias)
        self.keeps_bf16 = keeps_bf16
        self.adapter: nn.Module | None = None  # see `models/adapters.py`

    def forward(self, input: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        output = self.product(input, self.weight, self.bias)
        return output if self.adapter is None else output + self.adapter(input).to(output.dtype)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`forward` with other parameters, such as the joined parameters of several layers."""
        return linear(x, weight, bias, keeps_bf16=self.keeps_bf16)


LEAST_ROWS = 64
"""Products in bf16 have a multiple of this many rows, of many rows a multiple of more."""


def num_padded(num_rows: int) -> int:
    """The rows that a product in bf16 gets for `num_rows`: at most an eighth more, from 512 rows on.

    oneDNN generates code for each shape of a product on AMX, which takes 4 to 6 ms, ten times the product of a small
    model, and most batches have a number of rows of their own.
    """
    step = max(LEAST_ROWS, (1 << max(num_rows, 1).bit_length() - 1) // 8)
    return -(-num_rows // step) * step


def padded_bf16(x: Tensor) -> Tensor:
    """The rows (M, K) in bf16, and rows of zeros behind them: (M', K)."""
    missing = num_padded(len(x)) - len(x)
    if not missing:
        return x.bfloat16()
    padded = x.new_empty(len(x) + missing, x.size(1), dtype=torch.bfloat16)
    padded[: len(x)], padded[len(x) :] = x, 0
    return padded


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, keeps_bf16: bool) -> Tensor:
        ctx.x_dtype = x.dtype
        is_frozen = not ctx.needs_input_grad[1]  # then the input is not needed
        if not rounds():
            ctx.save_for_backward(None if is_frozen else x, weight)
            return plain_linear(x, weight, bias)
        num_rows, x, weight = len(x), padded_bf16(x), weight.bfloat16()
        ctx.save_for_backward(None if is_frozen else x, weight)
        if keeps_bf16:
            return onednn_linear(x, weight, None if bias is None else bias.bfloat16())[:num_rows]
        product = plain_linear(x, weight)[:num_rows].float()
        return product if bias is None else product.add_(bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        bias_grad = gradient.sum(dim=0).float() if needs_bias else None
        num_rows = len(gradient)
        gradient = padded_bf16(gradient) if weight.dtype == torch.bfloat16 else gradient
        return (
            plain_linear(gradient, weight.t())[:num_rows].to(ctx.x_dtype) if needs_x else None,
            plain_linear(gradient.t(), x.t()).float() if needs_weight else None,
            bias_grad,
            None,
        )


INT8_LEVELS = 127  # of int8, on either side of 0
TINY = 1e-12  # keeps a row of zeros from a scale of 0


class Bf16Product:
    """x W^T + bias -> bf16; sums in fp32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take `weight` (N, K) and `bias` (N,), if any, in fp32."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16(), None)
        self.bias = None if bias is None else bias.detach().bfloat16()

    @staticmethod
    def read(x: Tensor, *, is_free: bool = False) -> Tensor:
        """Inputs (..., K) of any type as a product takes them (M, K); if they are free, they may be overwritten."""
        return x.flatten(0, -2).bfloat16()

    def __call__(self, x: Tensor, *, is_gelu: bool = False) -> Tensor:
        """Result of `read` (M, K) -> (M, N), or GELU of that."""
        then, form = ("gelu", "none") if is_gelu else ("none", "")
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, then, [], form)
        return result


class Int8Product:
    """x W^T + bias -> fp32; both factors in int8."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take `weight` (N, K) and `bias` (N,), if any, in fp32."""
        weight = weight.detach()
        self.scales = weight.abs().amax(dim=1).clamp_(min=TINY) / INT8_LEVELS  # (N,)
        rounded = (weight / self.scales[:, None]).round_().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int32)
        self.bias = None if bias is None else bias.detach().float().clone()

    @staticmethod
    def read(x: Tensor, *, is_free: bool = False) -> tuple[Tensor, Tensor]:
        """Inputs (..., K) of any type as a product takes them: rounded (M, K), and the scale of each row (M, 1)."""
        x = x.flatten(0, -2)
        most = torch.maximum(x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True).neg_())  # faster than abs
        scales = most.float().clamp_(min=TINY).div_(INT8_LEVELS)
        factors = scales.reciprocal()
        rounded = (x.mul_(factors) if is_free else x * factors).round_().to(torch.int8)
        # The kernels take unsigned inputs: flipping the highest bit adds 128, the zero point.
        return rounded.view(torch.uint8).bitwise_xor_(128), scales

    def __call__(self, x: tuple[Tensor, Tensor], *, is_gelu: bool = False) -> Tensor:
        """Result of `read` (M, K) -> (M, N), or GELU of that."""
        rounded, scales = x
        result: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 128, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        result.mul_(scales)
        if self.bias is not None:
            result.add_(self.bias)
        return torch.ops.aten.gelu_(result) if is_gelu else result


Product = Any
"""A `Bf16Product` or `Int8Product`."""
MakeProduct = type[Bf16Product] | type[Int8Product]


def joined(make: MakeProduct, *layers: Linear) -> Product:
    """One product for layers that read the same inputs; their outputs are side by side."""
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return make(torch.cat([layer.weight for layer in layers]), torch.cat(biases) if biases else None)
