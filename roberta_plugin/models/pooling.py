"""Features of all tokens of a text -> one vector.

Shapes: B texts, T positions, D model dimension.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Pooling = Literal["mean", "first", "max"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(features: Tensor, is_token: Tensor, pooling: str) -> Tensor:
    """Features (B, T, D) -> vectors (B, D): their mean or largest values over all tokens, or those of <s>.

    <s> and </s> are tokens, too; `is_token` (B, T) is False at padding.
    """
    check_pooling(pooling)
    if pooling == "first":
        return features[:, 0]
    if pooling == "max":
        return features.masked_fill(~is_token[..., None], -torch.inf).amax(dim=1)
    sums = features.masked_fill(~is_token[..., None], 0.0).sum(dim=1)
    return sums / is_token.sum(dim=1, keepdim=True)


def check_pooling(pooling: str) -> None:
    """Refuse an unknown way of pooling."""
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be {', '.join(map(repr, POOLINGS[:-1]))} or {POOLINGS[-1]!r}, got {pooling!r}.")
