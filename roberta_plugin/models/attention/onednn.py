"""Attention in fp32 on a CPU: one head of one sequence at a time, so that its weights stay in the cache.

All six matmuls of forward and backward go through oneDNN, or MKL where that is faster; dropout uses the random numbers
of `cpu.dropout`. Where products may be in bf16 (`cpu.linear.rounds`), all tensors between two of them are in bf16 too:
logits, weights and their gradients. The sums of a softmax stay in fp32.

Shapes: B blocks, H heads, T positions, Q positions that attend, K head dimension; q and t of them in one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roberta_plugin.models.attention.base import AttentionMask
from roberta_plugin.models.cpu.dropout import LEVELS, draw_words, keep_only, kept, scale_of_kept
from roberta_plugin.models.cpu.linear import plain_linear, rounds


def attend(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
    """softmax(q k^T / sqrt(K)) v of q (B, H, Q, K), k and v (B, H, T, K); see `AttentionBackend`."""
    sequences = mask.sequences
    if sequences is None:
        # A row with only padding gets zero weights, as in sdpa, instead of the softmax of minus infinity
        is_empty = [False] * len(q) if mask.is_padding is None else mask.is_padding.all(dim=1).tolist()
        whole = slice(0, q.size(2)), slice(0, k.size(2))
        segments = [Segment(block, *whole) for block in range(len(q)) if not is_empty[block]]
    else:
        bounds = zip(pairwise(sequences.cu_seqlens_q.tolist()), pairwise(sequences.cu_seqlens_k.tolist()), strict=True)
        segments = [Segment(0, slice(*of_q), slice(*of_k)) for of_q, of_k in bounds if of_q[0] < of_q[1]]
    level = round(dropout_prob * LEVELS)
    output: Tensor = _Attention.apply(q, k, v, mask.is_padding, segments, level)  # type: ignore[no-untyped-call]
    return output


class Segment(NamedTuple):
    """Positions of one block that attend to each other."""

    block: int
    q: slice
    k: slice

    @property
    def shape(self) -> tuple[int, int]:
        """(q, t)."""
        return self.q.stop - self.q.start, self.k.stop - self.k.start


def _heads(segments: list[Segment], num_heads: int) -> Iterator[tuple[Segment, int, slice]]:
    """Every head of every segment, and the slice of its weights in the flat array of all weights."""
    end = 0
    for segment in segments:
        size = segment.shape[0] * segment.shape[1]
        for head in range(num_heads):
            yield segment, head, slice(end, end + size)
            end += size


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_padding: Tensor | None, segments: list[Segment], level: int
    ) -> Tensor:
        batch, heads, num_queries, dim = q.shape
        # (B, Q, H, K) in memory: the caller joins the heads without a copy
        output = q.new_zeros(batch, num_queries, heads, dim).transpose(1, 2)
        dtype = torch.bfloat16 if rounds() else torch.float32
        q, k, v = (factor.to(dtype).contiguous() for factor in (q * dim**-0.5, k, v))
        weights = q.new_empty(heads * sum(segment.shape[0] * segment.shape[1] for segment in segments))
        words = draw_words(weights.shape) if level else None
        for segment, head, at in _heads(segments, heads):
            at_q, at_k = (segment.block, head, segment.q), (segment.block, head, segment.k)
            logits = plain_linear(q[at_q], k[at_k])  # (q, K), (t, K) -> (q, t)
            if is_padding is not None:
                logits.masked_fill_(is_padding[segment.block, segment.k], float("-inf"))
            used = torch.softmax(logits, dim=-1, out=weights[at].view(segment.shape))
            if words is not None:
                used = keep_only(used, kept(words[at].view(segment.shape), level, dtype))
            output[at_q] = plain_linear(used, v[at_k].t())
        ctx.save_for_backward(q, k, v, weights, words)
        ctx.level, ctx.segments = level, segments
        return output.mul_(scale_of_kept(level)) if level else output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        q, k, v, weights, words = ctx.saved_tensors
        output_grad = gradients[0].contiguous()
        output_grad = (output_grad * scale_of_kept(ctx.level) if ctx.level else output_grad).to(q.dtype)
        q_grad, k_grad, v_grad = (torch.zeros_like(factor, dtype=gradients[0].dtype) for factor in (q, k, v))
        for segment, head, at in _heads(ctx.segments, q.size(1)):
            at_q, at_k = (segment.block, head, segment.q), (segment.block, head, segment.k)
            used = of_softmax = weights[at].view(segment.shape)
            used_grad = plain_linear(output_grad[at_q], v[at_k])  # (q, K), (t, K) -> (q, t)
            if words is not None:
                keep = kept(words[at].view(segment.shape), ctx.level, q.dtype)
                used, used_grad = keep_only(used, keep), keep_only(used_grad, keep)
            # The transposed result, because oneDNN copies a left factor that is transposed: here the smaller one
            v_grad[at_k] = plain_linear(output_grad[at_q].t(), used.t()).t()
            logits_grad = torch._softmax_backward_data(used_grad, of_softmax, -1, q.dtype)
            q_grad[at_q] = plain_linear(logits_grad, k[at_k].t())
            k_grad[at_k] = plain_linear(q[at_q].t(), logits_grad.t()).t()
        return q_grad.mul_(q.size(-1) ** -0.5), k_grad, v_grad, None, None, None
