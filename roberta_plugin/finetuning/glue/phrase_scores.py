"""How well a phrase fits into a text: the mean log-probability of its masked tokens (paper section 5.1, WNLI).

All tokens of the phrase are masked at once and predicted by the masked-LM head, as in fairseq's
examples/roberta/wsc/wsc_criterion.py. Works with our models and fairseq's `roberta`.

Shapes: B examples in a batch, S their sequences, T positions, M tokens of all phrases, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def phrase_scores(model: Any, sample: Mapping[str, Any], *, mask_id: int) -> Tensor:
    """Scores (S, 1) of the sequences of a batch of kind `phrase_ranking`, in fp32; 0 if the phrase is empty."""
    inputs, lengths = sample["net_input"], sample["net_input"]["src_lengths"]
    counts = sample["offsets"].diff()
    before, after = (
        sample["columns"][name].repeat_interleave(counts, output_size=len(lengths)) for name in ("before", "after")
    )  # (B,) -> (S,)
    tokens = inputs["src_tokens"]
    begins = _begins(inputs) + before
    sizes = lengths - before - after  # of the phrases (S,)
    sequence = torch.arange(len(lengths), device=tokens.device).repeat_interleave(sizes)  # (M,), of each token
    within = torch.arange(len(sequence), device=tokens.device) - (sizes.cumsum(0) - sizes)[sequence]
    places = begins[sequence] + within  # (M,) in the flat tokens
    is_masked = torch.zeros_like(tokens, dtype=torch.bool).view(-1).index_fill(0, places, True).view_as(tokens)
    masked = tokens.masked_fill(is_masked, mask_id)
    logits, _ = model(**{**inputs, "src_tokens": masked}, masked_tokens=is_masked)  # (M, V)
    found = logits.float().log_softmax(dim=-1).gather(1, tokens.view(-1)[places, None])  # (M, V) -> (M, 1)
    sums = torch.zeros(len(lengths), 1, device=tokens.device).index_add(0, sequence, found)  # (M, 1) -> (S, 1)
    means: Tensor = sums / sizes.clamp(min=1)[:, None]
    return means


def _begins(inputs: Mapping[str, Any]) -> Tensor:
    """Where each sequence begins in the flat tokens (S,)."""
    lengths: Tensor = inputs["src_lengths"]
    if "packing" in inputs:
        return lengths.cumsum(0) - lengths
    width: int = inputs["src_tokens"].size(1)
    return torch.arange(len(lengths), device=lengths.device) * width
