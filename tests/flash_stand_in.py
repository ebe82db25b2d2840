"""A CPU stand-in for torch's flash-attention operators, which only GPUs have.

It is registered with torch's dispatcher under the operators' own names, so that torch's schema checks the arguments of a
call and torch's own derivative calls the backward operator. Like the kernels it computes nothing beyond `max_q` and
`max_k` positions of a sequence, and what they leave uninitialized is NaN here.

Shapes: N positions of a row, H heads, K head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor


def _parts(q, k, cum_q, cum_k, max_q, max_k, dropout_p, seed):
    """Each sequence's slices of q and k, and the factors of its weights."""
    generator = torch.Generator().manual_seed(int(seed))
    for (q_start, q_end), (k_start, k_end) in zip(pairwise(cum_q.tolist()), pairwise(cum_k.tolist()), strict=True):
        at_q, at_k = slice(q_start, min(q_end, q_start + max_q)), slice(k_start, min(k_end, k_start + max_k))
        shape = (q.size(1), at_q.stop - at_q.start, at_k.stop - at_k.start)
        yield at_q, at_k, torch.rand(shape, generator=generator).ge(dropout_p) / (1 - dropout_p)


def _weights(q, k, scale, left, right) -> Tensor:
    """The kernel's windows lie around the place that a query would have if both sequences ended together."""
    logits = torch.einsum("ihd,jhd->hij", q, k) * scale
    distances = torch.arange(len(k)) - torch.arange(len(q))[:, None] - (len(k) - len(q))
    if left is not None:
        logits = logits.masked_fill((distances < -left) | (distances > right), -torch.inf)
    return torch.softmax(logits, dim=-1)


def _check(q, k, v, cum_q, cum_k):
    assert q.dtype == k.dtype == v.dtype and q.dtype in (torch.float16, torch.bfloat16), q.dtype
    assert cum_q.dtype == cum_k.dtype == torch.int32 and cum_q.is_contiguous() and cum_k.is_contiguous()
    assert q.dim() == k.dim() == v.dim() == 3 and q.size(2) % 8 == 0
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1


def _forward(
    q,
    k,
    v,
    cum_q,
    cum_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    return_debug_mask,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
    **others,
):  # the names and the order of torch's schema
    _check(q, k, v, cum_q, cum_k)
    assert not is_causal and not return_debug_mask and not any(value is not None for value in others.values())
    seed = torch.randint(2**31, (2,))
    output = torch.full_like(q, torch.nan)
    for at_q, at_k, factors in _parts(q, k, cum_q, cum_k, max_q, max_k, dropout_p, seed[0]):
        weights = _weights(q[at_q].float(), k[at_k].float(), scale, window_size_left, window_size_right) * factors
        output[at_q] = torch.einsum("hij,jhd->ihd", weights, v[at_k].float()).to(q.dtype)
    return output, q.new_zeros(q.size(1), q.size(0), dtype=torch.float32), seed, seed[1], q.new_empty(0)


def _backward(
    grad_out, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, rng_state, unused, *,
    scale=None, window_size_left=None, window_size_right=None, **others,
):  # fmt: skip
    _check(q, k, v, cum_q, cum_k)
    gradients = [torch.full_like(x, torch.nan) for x in (q, k, v)]
    for at_q, at_k, factors in _parts(q, k, cum_q, cum_k, max_q, max_k, dropout_p, rng_state[0]):
        q_part, k_part, v_part = q[at_q].float(), k[at_k].float(), v[at_k].float()
        grad = grad_out[at_q].float()
        weights = _weights(q_part, k_part, scale, window_size_left, window_size_right)
        weights_grad = torch.einsum("ihd,jhd->hij", grad, v_part) * factors
        logits_grad = weights * (weights_grad - (weights_grad * weights).sum(-1, keepdim=True)) * scale
        parts = (
            torch.einsum("hij,jhd->ihd", logits_grad, k_part),
            torch.einsum("hij,ihd->jhd", logits_grad, q_part),
            torch.einsum("hij,ihd->jhd", weights * factors, grad),
        )
        for whole, at, part in zip(gradients, (at_q, at_k, at_k), parts, strict=True):
            whole[at] = part.to(whole.dtype)
    return tuple(gradients)


def _cudnn_forward(
    q,
    k,
    v,
    bias,
    cum_q,
    cum_k,
    max_q,
    max_k,
    compute_log_sumexp,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    *,
    scale=None,
):  # torch leaves out what is its default
    assert bias is None and compute_log_sumexp and not is_causal and not return_debug_mask
    assert all(x.is_contiguous() for x in (q, k, v)), "cuDNN's offsets are those of contiguous rows"
    assert (16 * dropout_p).is_integer()
    output, sums, seed, offset, empty = _forward(
        q, k, v, cum_q, cum_k, max_q, max_k, dropout_p, False, False, scale=scale
    )
    return output, sums, cum_q, cum_k, max_q, max_k, seed, offset, empty


def _cudnn_backward(
    grad_out, q, k, v, out, logsumexp, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *, scale=None
):  # fmt: skip
    assert all(x.is_contiguous() for x in (grad_out, q, k, v, out))
    return _backward(
        grad_out, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, scale=scale
    )


@contextmanager
def cudnn_on_cpu() -> Iterator[None]:
    """Where cuDNN's operators for sequences of different lengths run on CPU tensors."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_cudnn_attention_forward", _cudnn_forward, "CPU")
        library.impl("_cudnn_attention_backward", _cudnn_backward, "CPU")
        yield


@contextmanager
def flash_on_cpu() -> Iterator[None]:
    """Where the operators run on CPU tensors."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_flash_attention_forward", _forward, "CPU")
        library.impl("_flash_attention_backward", _backward, "CPU")
        yield
