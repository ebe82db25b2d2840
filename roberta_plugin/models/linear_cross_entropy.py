"""Cross-entropy of a linear layer's output, without ever holding all of that output.

    loss = sum over m of -log softmax(x_m W^T + b)[y_m], where y_m is not the id to be ignored

On a GPU with a torch that has it, `F.linear_cross_entropy` does it in chunks. On a CPU, where that function either
keeps all scores or is slow, our own loop over chunks does: the scores of a chunk stay in the cache, and the gradients
are computed while they are there. Everything else takes the plain path. All paths pass one parity test.

Shapes: M rows, D dimension, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.cpu.linear import linear

ROWS_IN_CHUNK = 256


def summed_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *, ignored: int) -> Tensor:
    """The loss above, by the best path for the device: `x` (M, D), `weight` (V, D), `bias` (V,), `targets` (M,).

    Returns:
        A scalar in fp32, in nats.
    """
    return choose_path(x)(x, weight, bias, targets, ignored)


def choose_path(x: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]:
    """Which of the functions below serves an input like `x`."""
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return chunked
    if x.device.type == "cuda" and has_fused():
        return fused
    return plain


def has_fused() -> bool:
    """Whether the installed torch has a chunked linear cross-entropy."""
    return hasattr(F, "linear_cross_entropy") and hasattr(torch.nn, "LinearCrossEntropyOptions")


def plain(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """All scores (M, V) at once; their softmax in fp32."""
    return F.cross_entropy(F.linear(x, weight, bias).float(), targets, reduction="sum", ignore_index=ignored)


def fused(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """torch's own chunks."""
    losses = F.linear_cross_entropy(
        x,
        weight,
        targets,
        linear_bias=bias,
        ignore_index=ignored,
        # Summed in the type of the input, bf16 would lose the loss: 13,366 came out as 11,072.
        reduction="sum" if x.dtype == torch.float32 else "none",
        options=torch.nn.LinearCrossEntropyOptions(),
    )
    return losses.float().sum()


def chunked(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """Our own chunks: the gradients are computed in the forward pass, so it needs a single backward pass."""
    counts = targets.ne(ignored)
    return _Chunked.apply(x[counts], weight, bias, targets[counts])  # type: ignore[no-any-return, no-untyped-call]


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        x_grad = torch.empty_like(x)
        weight_grad, bias_grad = None, torch.zeros_like(bias)
        loss = x.new_zeros(())
        for start in range(0, x.size(0), ROWS_IN_CHUNK):
            rows, answers = x[start : start + ROWS_IN_CHUNK], targets[start : start + ROWS_IN_CHUNK, None]
            scores = linear(rows, weight, bias)  # (rows, V)
            of_answers = scores.gather(1, answers)
            largest = scores.amax(dim=1, keepdim=True)
            sums = scores.sub_(largest).exp_().sum(dim=1, keepdim=True)
            loss += (sums.log() + largest - of_answers).sum()
            # d loss / d scores = softmax - one-hot
            scores.div_(sums).scatter_add_(1, answers, scores.new_full((len(rows), 1), -1.0))
            x_grad[start : start + ROWS_IN_CHUNK] = linear(scores, weight.t())
            weight_grad = linear(scores.t(), rows.t()) if weight_grad is None else weight_grad.addmm_(scores.t(), rows)
            bias_grad += scores.sum(dim=0)
        ctx.save_for_backward(x_grad, torch.zeros_like(weight) if weight_grad is None else weight_grad, bias_grad)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x_grad, weight_grad, bias_grad = ctx.saved_tensors
        (scale,) = gradients
        return x_grad * scale, weight_grad * scale, bias_grad * scale, None
