"""Token and position embeddings.

Shapes: B blocks, T positions, D model dimension, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LearnedPositions(nn.Embedding):
    """Position embeddings numbered as in fairseq: the first token has row pad_id + 1, padding has row pad_id."""

    def __init__(self, max_positions: int, dim: int, *, pad_id: int) -> None:
        super().__init__(max_positions + pad_id + 1, dim, padding_idx=pad_id)
        self.pad_id = pad_id

    def forward(self, tokens: Tensor, *, is_padding: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> (B, T, D); or (T, D), shared by all blocks, if nothing is padding.

        `positions` (B, T), 0 for the first token of a sequence, give the position of each token; without them, tokens
        are counted.

        Example: with pad_id 1, the ids [0, 8, 9, 1] get the rows [2, 3, 4, 1].
        """
        first = self.pad_id + 1
        if positions is not None:
            return F.embedding(positions + first, self.weight, self.padding_idx)
        if is_padding is None:
            return self.weight[first : first + tokens.size(1)]
        is_token = (~is_padding).long()
        rows = torch.cumsum(is_token, dim=1) * is_token + self.pad_id
        return F.embedding(rows, self.weight, self.padding_idx)
