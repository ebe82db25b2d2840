"""Dropout that is cheap on a CPU.

torch draws one Bernoulli number per element there, from a serial generator, which takes longer than the matmuls around
it. Here 64 random bits serve four elements, 16 bits each. The probability is rounded to a multiple of 1/65536, and the
scale follows the rounded probability, so the expectation stays exact. Other devices use torch's own dropout.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


def draw_words(shape: torch.Size) -> Tensor:
    """16 random bits for each element, as int16 (`shape`, CPU)."""
    num_draws = -(-shape.numel() // 4)
    draws = torch.empty(num_draws, dtype=torch.int64).random_(-(2**63), None)
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
