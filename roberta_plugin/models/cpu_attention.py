"""The attention product in fp32 on a CPU: one head of one block at a time, so that its weights stay in the cache.

Each of the six matrix products of forward and backward goes through oneDNN, and dropout draws as `dropout` does.

Shapes: B blocks, H heads, T positions, Q positions that attend, K head dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .cpu_products import product
from .dropout import LEVELS, draw_words, kept, scale_of_kept


def attend(q: Tensor, k: Tensor, v: Tensor, *, is_padding: Tensor | None, dropout_prob: float) -> Tensor:
    """softmax(q k^T / sqrt(K)) v of q (B, H, Q, K), k and v (B, H, T, K); see `AttentionBackend`."""
    level = round(dropout_prob * LEVELS)
    output: Tensor = _Attention.apply(q, k, v, is_padding, level)  # type: ignore[no-untyped-call]
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_padding: Tensor | None, level: int) -> Tensor:
        q, k, v = q * q.size(-1) ** -0.5, k.contiguous(), v.contiguous()
        batch, heads, num_queries, dim = q.shape
        weights = q.new_empty(batch, heads, num_queries, k.size(2))
        words = draw_words(weights.shape) if level else None
        # (B, Q, H, K) in memory: the caller joins the heads without a copy
        output = q.new_empty(batch, num_queries, heads, dim).transpose(1, 2)
        for block in range(batch):
            for head in range(heads):
                scores = product(q[block, head], k[block, head])  # (Q, K), (T, K) -> (Q, T)
                if is_padding is not None:
                    scores.masked_fill_(is_padding[block], float("-inf"))
                used = torch.softmax(scores, dim=-1, out=weights[block, head])
                if words is not None:
                    used = used * kept(words[block, head], level)
                output[block, head] = product(used, v[block, head].t())
        ctx.save_for_backward(q, k, v, weights, words)
        ctx.level = level
        return output.mul_(scale_of_kept(level))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, weights, words = ctx.saved_tensors
        output_grad = gradients[0].contiguous() * scale_of_kept(ctx.level)
        q_grad, k_grad, v_grad = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for block in range(q.size(0)):
            for head in range(q.size(1)):
                at = (block, head)
                used, used_grad = weights[at], product(output_grad[at], v[at])  # (Q, K), (T, K) -> (Q, T)
                if words is not None:
                    mask = kept(words[at], ctx.level)
                    used = used * mask
                    used_grad.mul_(mask)
                v_grad[at] = product(used.t(), output_grad[at].t())
                scores_grad = torch._softmax_backward_data(used_grad, weights[at], -1, torch.float32)
                q_grad[at] = product(scores_grad, k[at].t())
                k_grad[at] = product(scores_grad.t(), q[at].t())
        return q_grad.mul_(q.size(-1) ** -0.5), k_grad, v_grad, None, None
