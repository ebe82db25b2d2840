"""Self-attention: projections and heads; the product itself is a backend's.

Shapes: B blocks, T positions, D model dimension, H heads, K = D / H.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention_backends import choose_backend


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2.2), with fairseq's parameter names."""

    def __init__(self, dim: int, *, num_heads: int, dropout_prob: float, backend: str = "auto") -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout_prob = dropout_prob
        self.backend = backend
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.q_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, is_padding: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D); positions where `is_padding` (B, T) is set are not attended to."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        # Three matrices on disk, one product at run time.
        weight = torch.cat([projection.weight for projection in projections])  # (3D, D)
        bias = torch.cat([projection.bias for projection in projections])
        qkv = F.linear(x, weight, bias)  # (B, T, D) -> (B, T, 3D)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # -> 3 x (B, H, T, K)
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = choose_backend(self.backend, device=x.device, dropout_prob=dropout_prob)
        attended = attend(q, k, v, is_padding=is_padding, dropout_prob=dropout_prob)
        output: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))  # (B, H, T, K) -> (B, T, D)
        return output
