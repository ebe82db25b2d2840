"""Logits of competing sequences -> one row per example.

Example: of two examples, the first has 3 sequences and the second 2. Then O = 4:

    by_example([a, b, c, d, e], [0, 3, 5])  ->  [[a, b, c, -inf], [d, e, -inf, -inf]]

Shapes: B examples in the batch, S sequences of all of them, O = S - B + 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def by_example(logits: Tensor, first: Tensor) -> Tensor:
    """Logits (S,), of which example b has those from first[b] to first[b + 1] -> (B, O), -inf elsewhere.

    O bounds the number of sequences of an example; it is known without a device-to-host sync.
    """
    num_sequences, num_examples = len(logits), len(first) - 1
    rows = torch.arange(num_examples, device=logits.device)
    example = rows.repeat_interleave(first.diff(), output_size=num_sequences)  # (S,)
    place = torch.arange(num_sequences, device=logits.device) - first[example]  # (S,), within the example
    choices = logits.new_full((num_examples, num_sequences - num_examples + 1), -torch.inf)
    return choices.index_put((example, place), logits)
