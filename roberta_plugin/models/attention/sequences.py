"""Sequences laid end to end in one row, without padding between them.

Shapes: S sequences, N positions of the row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sequences(NamedTuple):
    """Where the sequences of a row begin and end, for those that attend (q) and those attended to (k).

    Both have the same number of sequences; a predicted position, for instance, attends to its own sequence only. A
    sequence may be empty, so that the number of edges need not change from batch to batch.
    """

    cu_seqlens_q: Tensor
    """Sequence s holds the positions cu_seqlens_q[s] to cu_seqlens_q[s + 1] (S + 1,), int32, from 0 to N."""
    cu_seqlens_k: Tensor
    """The same for the positions attended to (S + 1,)."""
    max_seqlen_q: int
    """No sequence has more positions that attend; known to the CPU."""
    max_seqlen_k: int
    """No sequence has more positions attended to."""

    def is_same_sequence(self, num_q: int, num_k: int) -> Tensor:
        """Whether a position may attend to another (num_q, num_k), bool."""
        device = self.cu_seqlens_q.device
        of_q = torch.bucketize(torch.arange(num_q, device=device), self.cu_seqlens_q[1:], right=True)
        of_k = torch.bucketize(torch.arange(num_k, device=device), self.cu_seqlens_k[1:], right=True)
        return of_q[:, None] == of_k[None, :]
