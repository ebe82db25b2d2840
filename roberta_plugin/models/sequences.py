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

    q_edges: Tensor
    """Sequence s holds the positions q_edges[s] to q_edges[s + 1] (S + 1,), int32, from 0 to N."""
    k_edges: Tensor
    """The same for the positions attended to (S + 1,)."""
    q_longest: int
    """No sequence has more positions that attend; known to the CPU."""
    k_longest: int
    """No sequence has more positions attended to."""

    def is_same_sequence(self, num_q: int, num_k: int) -> Tensor:
        """Whether a position may attend to another (num_q, num_k), bool."""
        device = self.q_edges.device
        of_q = torch.bucketize(torch.arange(num_q, device=device), self.q_edges[1:], right=True)
        of_k = torch.bucketize(torch.arange(num_k, device=device), self.k_edges[1:], right=True)
        return of_q[:, None] == of_k[None, :]
