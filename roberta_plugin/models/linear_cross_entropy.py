"""Cross-entropy of a linear layer's output, without holding all of that output at once.

    loss = sum over m of -log softmax(x_m W^T + b)[y_m], over the rows whose y_m is not the ignored id

On a GPU, `F.linear_cross_entropy` computes it in chunks, if torch has that function. On a CPU, where that function
keeps all logits or is slow, our own loop over chunks does: the logits of a chunk stay in the cache, and the gradients
are computed from them there. All other cases take the plain path. All paths pass one parity test.

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
    """The function below that computes it for inputs like `x`."""
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return chunked
    if x.device.type == "cuda" and has_fused():
        return fused
    return plain


def has_fused() -> bool:
    """Whether the installed torch has a chunked linear cross-entropy."""
    return hasattr(F, "linear_cross_entropy") and hasattr(torch.nn, "LinearCrossEntropyOptions")


def plain(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """All logits (M, V) at once; their softmax in fp32."""
    return F.cross_entropy(F.linear(x, weight, bias).float(), targets, reduction="sum", ignore_index=ignored)


def fused(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """In chunks, by torch."""
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
    """In chunks, by our own loop: the forward pass computes the gradients too, so only one backward pass may follow."""
    counts = targets.ne(ignored)
    return _Chunked.apply(x[counts], weight, bias, targets[counts])  # type: ignore[no-any-return, no-untyped-call]


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        x_grad = torch.empty_like(x)
        weight_grad, bias_grad = None, torch.zeros_like(bias)
        loss = x.new_zeros(())
        for start in range(0, x.size(0), ROWS_IN_CHUNK):
            rows, labels = x[start : start + ROWS_IN_CHUNK], targets[start : start + ROWS_IN_CHUNK, None]
            logits = linear(rows, weight, bias)  # (rows, V)
            of_labels = logits.gather(1, labels)
            largest = logits.amax(dim=1, keepdim=True)
            sums = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            loss += (sums.log() + largest - of_labels).sum()
            # d loss / d logits = softmax - one-hot
            logits.div_(sums).scatter_add_(1, labels, logits.new_full((len(rows), 1), -1.0))
            x_grad[start : start + ROWS_IN_CHUNK] = linear(logits, weight.t())
            weight_grad = linear(logits.t(), rows.t()) if weight_grad is None else weight_grad.addmm_(logits.t(), rows)
            bias_grad += logits.sum(dim=0)
        ctx.save_for_backward(x_grad, torch.zeros_like(weight) if weight_grad is None else weight_grad, bias_grad)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x_grad, weight_grad, bias_grad = ctx.saved_tensors
        (scale,) = gradients
        return x_grad * scale, weight_grad * scale, bias_grad * scale, None
