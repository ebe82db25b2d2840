"""Scores of sequences that compete -> one row of choices an example.

Shapes: B examples in the batch, S sequences of all of them, O = S - B + 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def by_example(scores: Tensor, first: Tensor) -> Tensor:
    """Scores of all sequences (S,), where example b has those from first[b] to first[b + 1] -> (B, O), -inf elsewhere.

    O is a bound that is known without asking the device for the largest number of sequences.
    """
    num_sequences, num_examples = len(scores), len(first) - 1
    rows = torch.arange(num_examples, device=scores.device)
    example = rows.repeat_interleave(first.diff(), output_size=num_sequences)  # (S,)
    place = torch.arange(num_sequences, device=scores.device) - first[example]  # (S,), within the example
    choices = scores.new_full((num_examples, num_sequences - num_examples + 1), -torch.inf)
    return choices.index_put((example, place), scores)
