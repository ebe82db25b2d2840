"""Cross-entropy of a linear layer's output, without holding all of that output at once.

    loss = sum over m of -log softmax(x_m W^T + b)[y_m], over the rows whose y_m is not the ignored id

On a CPU in fp32, a loop of our own goes over chunks of 256 rows: the logits of a chunk stay in the cache, and the
gradients are computed from them there. Elsewhere the plain path is taken, if its logits are a small part of the
device's memory; otherwise the same loop with chunks of 2,048 rows, large enough to keep a GPU busy.
(`F.linear_cross_entropy` of torch 2.13 cuts the 4,928 rows of 64 blocks into 77 chunks of 64: 3,175 kernels instead of
11, and in bf16 ten times the error in the gradient of W.) All paths pass one parity test.

On a GPU, rows of logits must begin at multiples of 16 bytes, or products take slow kernels. Where V is not a multiple
of 8, as with RoBERTa's 50,265 symbols, W gets rows of zeros up to a multiple of 64, and b -inf for them. Their
probability is 0, so the loss is the same, bit for bit.

Gradients of W and b are summed over chunks in fp32. Relative error of the gradient of W for 4,928 rows in bf16, against
float64: 0.22 % by the plain path and in chunks of 2,048 rows; of all three gradients together 0.18 and 0.28 %
(tests/unit/models/test_heads.py).

Shapes: M rows, D dimension, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.models.cpu import factors, linear, num_padded, rounds

ROWS_IN_CHUNK = 256  # on a CPU
ROWS_IN_LARGE_CHUNK = 2048
PLAIN_BYTES = 16  # of memory for each logit: in half precision, in fp32, log-softmax, and both gradients
PLAIN_SHARE = 1 / 16  # of the device's memory
ALIGNED, PADDED = 8, 64  # V that is a multiple of the first is left as it is, else padded to one of the second

Path = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


def summed_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *, ignored: int) -> Tensor:
    """The loss above, by the best path for the device: `x` (M, D), `weight` (V, D), `bias` (V,), `targets` (M,).

    Returns:
        A scalar in fp32, in nats.
    """
    path = choose_path(x.device, x.dtype, num_logits=x.size(0) * weight.size(0))
    if x.device.type == "cuda":
        weight, bias = pad_vocabulary(weight, bias)
    return path(x, weight, bias, targets, ignored)


def uses_plain_path(x: Tensor, vocab_size: int) -> bool:
    """True if the loss of features (M, D) on a GPU has all logits at once."""
    return choose_path(x.device, x.dtype, num_logits=x.size(0) * vocab_size) is plain


def pad_vocabulary(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """`weight` (V, D) and `bias` (V,), with impossible symbols up to a multiple of `PADDED` if V is not aligned."""
    size = weight.size(0)
    if size % ALIGNED == 0:
        return weight, bias
    missing = -size % PADDED
    return F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing), value=float("-inf"))


def choose_path(device: torch.device, dtype: torch.dtype, *, num_logits: int) -> Path:
    """The best of the functions below for the device; `num_logits` is M V."""
    if device.type == "cpu":
        return chunked if dtype == torch.float32 and not torch.is_autocast_enabled("cpu") else plain
    fits = num_logits * PLAIN_BYTES <= PLAIN_SHARE * device_memory(device)
    return plain if fits else chunked_on_device


@cache
def device_memory(device: torch.device) -> float:
    """Memory of a GPU in bytes; of other devices, infinite."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else float("inf")


def plain(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """All logits (M, V) at once; their softmax in fp32."""
    return F.cross_entropy(F.linear(x, weight, bias).float(), targets, reduction="sum", ignore_index=ignored)


def chunked(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """The loss in small chunks of the counted rows only: on a GPU, finding these would be a device-to-host sync.

    The forward pass computes the gradients too, so only one backward pass may follow.
    """
    counts = targets.ne(ignored)
    x, targets = x[counts], targets[counts]
    if rounds():  # each number of rows is a shape of its own in several products
        missing = num_padded(len(x)) - len(x)
        x, targets = F.pad(x, (0, 0, 0, missing)), F.pad(targets, (0, missing), value=ignored)
    return _Chunked.apply(x, weight, bias, targets, ignored, ROWS_IN_CHUNK)  # type: ignore[no-any-return, no-untyped-call]


def chunked_on_device(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """The loss in large chunks of all rows, without a device-to-host sync."""
    return _Chunked.apply(x, weight, bias, targets, ignored, ROWS_IN_LARGE_CHUNK)  # type: ignore[no-any-return, no-untyped-call]


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int, chunk: int) -> Tensor:
        is_counted = targets.ne(ignored)
        x_grad = torch.empty_like(x)
        weight_grad: Tensor | None = None
        bias_grad = torch.zeros_like(bias, dtype=torch.float32)
        ctx.dtypes = weight.dtype, bias.dtype
        loss = x.new_zeros((), dtype=torch.float32)
        x, weight = factors(x, weight)  # here and not in every chunk, because W is large
        bias = bias.to(weight.dtype)
        for start in range(0, x.size(0), chunk):
            at = slice(start, start + chunk)
            rows, counts = x[at], is_counted[at, None].float()
            labels = targets[at, None].masked_fill(~is_counted[at, None], 0)  # of an ignored row: any id
            computed = linear(rows, weight, bias)  # (rows, V)
            logits = computed.float()
            of_labels = logits.gather(1, labels)
            largest = logits.amax(dim=1, keepdim=True)
            sums = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            loss += ((sums.log() + largest - of_labels) * counts).sum()
            # d loss / d logits = softmax - one-hot; 0 for rows that do not count
            logits.mul_(counts / sums).scatter_add_(1, labels, -counts)
            bias_grad += logits.sum(dim=0)
            logits_grad = logits.to(computed.dtype)
            x_grad[at] = linear(logits_grad, weight.t())
            if weight_grad is None:
                weight_grad = linear(logits_grad.t(), rows.t()).float()
            elif logits_grad.dtype == rows.dtype == torch.float32:
                weight_grad.addmm_(logits_grad.t(), rows)
            else:
                weight_grad += linear(logits_grad.t(), rows.t())
        if weight_grad is None:
            weight_grad = torch.zeros_like(weight, dtype=torch.float32)
        ctx.save_for_backward(x_grad, weight_grad, bias_grad)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        x_grad, weight_grad, bias_grad = ctx.saved_tensors
        (scale,) = gradients
        if scale.device.type != "cpu" or scale != 1:  # on a CPU it costs nothing to look
            x_grad, weight_grad, bias_grad = x_grad * scale, weight_grad * scale, bias_grad * scale
        weight_dtype, bias_dtype = ctx.dtypes
        return x_grad, weight_grad.to(weight_dtype), bias_grad.to(bias_dtype), None, None, None
