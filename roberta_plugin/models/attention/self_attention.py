"""Self-attention: projections and heads; a backend computes the attention.

Shapes: B blocks, T positions, Q positions that attend, D model dimension, H heads, K = D / H.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from roberta_plugin.models.attention.base import Sequences
from roberta_plugin.models.attention.registry import choose_backend
from roberta_plugin.models.cpu.linear import Linear


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2), with fairseq's parameter names."""

    def __init__(self, dim: int, *, num_heads: int, dropout_prob: float, backend: str = "auto") -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout_prob = dropout_prob
        self.backend = backend
        self.k_proj = Linear(dim, dim, keeps_bf16=True)
        self.v_proj = Linear(dim, dim, keeps_bf16=True)
        self.q_proj = Linear(dim, dim, keeps_bf16=True)
        self.out_proj = Linear(dim, dim)
        self.joins_projections = True

    def join(self) -> None:
        """Lay the projections' parameters side by side in memory, so that answers need no copies of them."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        for name in ("weight", "bias"):
            parts = [getattr(projection, name) for projection in projections]
            for part, place in zip(parts, torch.cat([part.data for part in parts]).split(len(parts[0])), strict=True):
                part.data = place

    def make_plain(self) -> None:
        """Use the steps that every runtime has, for export: in a graph, joining the matrices would be a step of it."""
        self.backend, self.joins_projections = "eager", False

    def forward(
        self,
        x: Tensor,
        *,
        is_padding: Tensor | None = None,
        sequences: Sequences | None = None,
        queries: Tensor | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D), or (B, Q, D) where `queries` (B, Q, D) attend to `x` instead of x itself.

        Positions where `is_padding` (B, T) is set get no attention; with `sequences`, a position attends only to its
        own sequence.
        """
        if queries is None:
            q, k, v = self._project(x, self.q_proj, self.k_proj, self.v_proj)
        else:
            (q,) = self._project(queries, self.q_proj)
            k, v = self._project(x, self.k_proj, self.v_proj)
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = choose_backend(
            self.backend,
            device=q.device,
            dtype=q.dtype,
            dropout_prob=dropout_prob,
            max_seqlen=k.size(2) if sequences is None else sequences.max_seqlen_k,
            is_packed=sequences is not None,
            head_dim=q.size(-1),
        )
        attended = attend(q, k, v, dropout_prob=dropout_prob, is_padding=is_padding, sequences=sequences)
        output: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))  # (B, H, Q, K) -> (B, Q, D)
        return output

    def _project(self, x: Tensor, *projections: Linear) -> tuple[Tensor, ...]:
        """(B, T, D) -> one (B, H, T, K) per projection: separate matrices on disk, one matmul at run time."""
        if not self.joins_projections or any(projection.adapter is not None for projection in projections):
            apart = (projection(x).unflatten(-1, (self.num_heads, -1)) for projection in projections)
            return tuple(part.transpose(1, 2) for part in apart)
        weight = side_by_side([projection.weight for projection in projections])  # (nD, D)
        bias = side_by_side([projection.bias for projection in projections])
        joined = projections[0].product(x, weight, bias)  # (B, T, D) -> (B, T, nD)
        heads = joined.unflatten(-1, (len(projections), self.num_heads, -1))  # -> (B, T, n, H, K)
        # Unbound before the axes are swapped: the backward pass then joins the gradients without another copy.
        return tuple(part.transpose(1, 2) for part in heads.unbind(2))  # -> n x (B, H, T, K)


def side_by_side(parts: list[Tensor]) -> Tensor:
    """The rows of several tensors as one: without a copy if they lie so in memory, and nobody asks for derivatives."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():  # a graph cannot look at memory
        return torch.cat(parts)
    first, end = parts[0], parts[0].storage_offset()
    for part in parts:
        is_next = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (is_next and part.storage_offset() == end and part.is_contiguous()):
            return torch.cat(parts)
        end += part.numel()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
