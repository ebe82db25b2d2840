"""Dropout that costs little on a CPU as well.

torch draws one Bernoulli number an element there, from a serial generator, which takes longer than the matrix
products around it. Here 64 random bits serve four elements, 16 bits each: the probability is rounded to a multiple of
1/65536, and the scale is that of the rounded one, so that the expectation stays exact. On other devices torch's own
dropout runs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16


class Dropout(nn.Module):
    """Set elements to 0 with `probability` in training, and scale the others so that the expectation stays."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return dropout(x, self.probability if self.training else 0.0)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"probability={self.probability}"


def dropout(x: Tensor, probability: float) -> Tensor:
    """Dropout of `x` (any shape), always active; draws from torch's generator of the device."""
    if probability == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability, training=True)
    return _CpuDropout.apply(x, round(probability * _LEVELS))  # type: ignore[no-any-return, no-untyped-call]


def draw_dropped(shape: torch.Size, level: int) -> Tensor:
    """Which elements (`shape`, bool, CPU) are dropped, each with probability level / 65536."""
    num_words = -(-shape.numel() // 4)
    words = torch.empty(num_words, dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.int16)[: shape.numel()] < level - _LEVELS // 2).view(shape)


class _CpuDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, level: int) -> Tensor:
        dropped = draw_dropped(x.shape, level)
        ctx.save_for_backward(dropped)
        ctx.scale = _LEVELS / (_LEVELS - level)
        output: Tensor = (x * ctx.scale).masked_fill_(dropped, 0.0)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (dropped,) = ctx.saved_tensors
        return (gradients[0] * ctx.scale).masked_fill_(dropped, 0.0), None
