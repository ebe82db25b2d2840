"""Phrases that compete for the place of a pronoun: their model inputs, and how well each fits (paper section 5.1).

The score is the mean log-probability of the phrase's tokens, which are all masked at once and predicted by the
masked-LM head, as in fairseq's examples/roberta/wsc/wsc_criterion.py. Works with our models and fairseq's `roberta`.

Shapes: B examples in a batch, S their sequences, T positions, M tokens of all phrases, P phrases of a schema, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.finetuning.model_inputs import Encoder


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


@dataclass(frozen=True, slots=True)
class Schema:
    """A text around a pronoun, and the phrases that compete to replace the pronoun."""

    before: str  # the text before the pronoun
    after: str  # and after it
    phrase: str  # the one that the row is about
    rivals: tuple[str, ...]


class SchemaInputs(NamedTuple):
    """Model inputs of a schema that differ in one phrase."""

    sequences: list[NDArray[np.int32]]
    """P inputs (T,), which hold the row's phrase first and then its rivals."""
    before: int
    """Tokens in front of the phrase, the same in all sequences."""
    after: int
    """Tokens behind it."""
    num_tokens: int
    """Tokens of the longest input before it was cut."""


def schema_inputs(schema: Schema, encoder: Encoder, *, max_length: int) -> SchemaInputs:
    """The text with each phrase in place of the pronoun; a text that is too long loses tokens at both ends.

    Example: "The drain is clogged with hair. It has to be cleaned." with the phrase "The hair" and the rival "The
    drain" -> `<s> The drain is clogged with hair. The hair has to be cleaned. </s>` and `<s> The drain is clogged with
    hair. The drain has to be cleaned. </s>`, with the same tokens before and after the phrase.
    """
    text = schema.before.rstrip()
    space = schema.before[len(text) :]  # byte-level BPE: a space belongs to the word that follows
    before, after = encoder.ids(text), encoder.ids(schema.after)
    phrases = [encoder.ids(space + phrase) for phrase in (schema.phrase, *schema.rivals)]
    num_tokens = len(before) + max(map(len, phrases)) + len(after) + 2
    room = max_length - 2 - max(map(len, phrases))
    after = after[: max(room - len(before), room // 2)]
    before = before[max(0, len(before) + len(after) - room) :]
    sequences = [encoder.join(np.concatenate([before, ids, after]), max_length=max_length) for ids in phrases]
    return SchemaInputs(sequences, len(before) + 1, len(after) + 1, num_tokens)
