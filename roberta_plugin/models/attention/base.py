"""The signature that every attention backend has.

Shapes: B blocks, H heads, T positions, Q positions that attend (all, or the predicted ones), K head dimension. A packed
row has B = 1 and `sequences`; a padded batch has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from roberta_plugin.models.attention.sequences import Sequences


class AttentionMask(NamedTuple):
    """The positions that each position may attend to: all, all but padding, or its own sequence."""

    is_padding: Tensor | None = None
    """Positions that may not be attended to (B, T)."""
    sequences: Sequences | None = None
    """The sequences of a packed row."""

    def allowed(self, q: Tensor, k: Tensor) -> Tensor | None:
        """As a bool tensor that broadcasts to (B, H, Q, T), True where attention is allowed; None: everywhere."""
        if self.sequences is not None:
            return self.sequences.is_same_sequence(q.size(2), k.size(2))
        return None if self.is_padding is None else ~self.is_padding[:, None, None, :]


class AttentionBackend(ABC):
    """softmax(q k^T / sqrt(K)) v, with dropout of the attention weights.

    Attributes:
        name: its name for --attention-backend.
        serves_padded: whether it takes padded batches.
        serves_packed: whether it takes packed rows.
    """

    name: str
    serves_padded = True
    serves_packed = True

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:  # noqa: B027  (runs everywhere)
        """Raise a RuntimeError that names what is missing, if this backend cannot run here."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        dropout_prob: float,
        is_padding: Tensor | None = None,
        sequences: Sequences | None = None,
    ) -> Tensor:
        """q (B, H, Q, K), k and v (B, H, T, K) -> (B, H, Q, K).

        Positions where `is_padding` (B, T) is set get no attention; with `sequences`, a position attends only to its
        own sequence. A row that is all padding gives finite, meaningless numbers.
        """
        return self.attend(q, k, v, AttentionMask(is_padding, sequences), dropout_prob)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """As `__call__`, with padding and sequences in one `mask`."""
