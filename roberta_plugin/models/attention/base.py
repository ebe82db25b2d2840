"""The signature that every attention backend has, and the bounds of the sequences in a packed row.

Example: three sequences of 4, 2 and 3 positions lie in a row of 9. cu_seqlens is [0, 4, 6, 9], and max_seqlen is 4.

Shapes: B blocks, H heads, T positions, Q positions that attend (all, or the predicted ones), K head dimension; S
sequences, N positions of a row. A packed row has B = 1 and `sequences`; a padded batch has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Sequences(NamedTuple):
    """Bounds of the sequences of a row, for the positions that attend (q) and those attended to (k).

    Both have the same number of sequences. A sequence may be empty, so that the number of sequences can be the same in
    every batch.
    """

    cu_seqlens_q: Tensor
    """Sequence s holds the positions cu_seqlens_q[s] to cu_seqlens_q[s + 1] (S + 1,), int32, from 0 to N."""
    cu_seqlens_k: Tensor
    """Bounds of the positions attended to (S + 1,)."""
    max_seqlen_q: int
    """No sequence has more positions that attend; an int, so no kernel launch waits for the device."""
    max_seqlen_k: int
    """No sequence has more positions attended to."""

    @classmethod
    def of_row(cls, packing: Mapping[str, Any]) -> Sequences:
        """Every position of the row attends to its own sequence; `packing` as in `FastRobertaModel.forward`."""
        cu_seqlens, max_seqlen = packing["cu_seqlens"], packing["max_seqlen"]
        return cls(cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, max_seqlen_q=max_seqlen, max_seqlen_k=max_seqlen)

    def for_predicted(self, predicted: Mapping[str, Any]) -> Sequences:
        """Only the predicted positions attend, each to its own sequence."""
        return self._replace(cu_seqlens_q=predicted["cu_seqlens"], max_seqlen_q=predicted["max_seqlen"])

    def is_same_sequence(self, num_q: int, num_k: int) -> Tensor:
        """Whether a position may attend to another (num_q, num_k), bool."""
        device = self.cu_seqlens_q.device
        of_q = torch.bucketize(torch.arange(num_q, device=device), self.cu_seqlens_q[1:], right=True)
        of_k = torch.bucketize(torch.arange(num_k, device=device), self.cu_seqlens_k[1:], right=True)
        return of_q[:, None] == of_k[None, :]


def first_positions(tokens: Tensor, packing: Mapping[str, Any] | None) -> dict[str, Any]:
    """The position of each sequence's <s>, in the form of `predicted`: the last layer is computed for these only.

    Example: for the row above, {"positions": [[0, 4, 6]], "cu_seqlens": [0, 1, 2, 3], "max_seqlen": 1}.
    """
    if packing is None:
        return {"positions": tokens.new_zeros(tokens.size(0), 1)}  # (B, 1); `len` would fix B in an exported graph
    cu_seqlens = packing["cu_seqlens"]
    return {
        "positions": cu_seqlens[None, :-1].long(),  # (S + 1,) -> (1, S)
        "cu_seqlens": torch.arange(len(cu_seqlens), dtype=cu_seqlens.dtype, device=cu_seqlens.device),
        "max_seqlen": 1,
    }


def first_of_predicted(features: Tensor, layout: Mapping[str, Any]) -> Tensor:
    """Features (B, Q, D) of which the first of each sequence is its <s> -> features of <s> (S, D).

    Args:
        features: of padded blocks, or of one packed row.
        layout: with "cu_seqlens" (S + 1,) in a packed row, else without; the padding at the end of a row gives some
            rows more, without a meaning.
    """
    cu_seqlens = layout.get("cu_seqlens")
    if cu_seqlens is None:
        return features[:, 0]  # (B, Q, D) -> (B, D)
    return features[0, cu_seqlens[:-1].long().clamp(max=features.size(1) - 1)]  # (1, Q, D) -> (S, D)


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
    """

    name: str
    serves_padded = True

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
