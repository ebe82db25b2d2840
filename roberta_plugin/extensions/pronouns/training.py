"""Competing phrases in place of a pronoun: scores by the masked-LM head, and the loss that ranks them.

Shapes: B examples in the batch, S their sequences, T positions, M tokens of all phrases, V vocabulary, O = S - B + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss, by_example


class PhraseRankingTraining(KindTraining):
    """The right phrase against its rivals."""

    @override
    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """The mean log-probability of each sequence's phrase (S, 1)."""
        return phrase_scores(model, sample, mask_id=self.vocabulary.mask_id)

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Ranking loss of the log-probabilities (S, 1): an example's first phrase, if it is right, against its rivals.

        As in fairseq's examples/roberta/wsc/wsc_criterion.py, after Kocijan et al. 2019, the loss is -right + alpha *
        max(0, rival - right + beta) for each rival. Neither paper states alpha and beta; the defaults are from
        fairseq's recipe for WinoGrande.
        """
        options = criterion.options
        labels, counts = sample["columns"]["label"].long(), sample["offsets"].diff()
        choices = by_example(outputs[:, 0].float(), sample["offsets"])  # (S,) -> (B, O), -inf where there is no phrase
        right, rivals = choices[:, :1], choices[:, 1:]
        is_learned = labels.eq(1) & counts.gt(1)
        if options["phrase_cross_entropy"]:
            losses = F.cross_entropy(choices, torch.zeros_like(labels), reduction="none")  # (B,)
        else:
            behind = (rivals - right + options["margin_beta"]).clamp(min=0)  # 0 where there is no rival
            losses = (options["margin_alpha"] * behind).sum(dim=1) - right[:, 0] * (counts - 1)
        return Loss(losses.masked_select(is_learned).sum(), int(is_learned.sum()))


def phrase_scores(model: Any, sample: Mapping[str, Any], *, mask_id: int) -> Tensor:
    """Scores (S, 1) of the phrases of a batch of kind `phrase_ranking`, in fp32; 0 if the phrase is empty.

    The score is the mean log-probability of the phrase's tokens, which are all masked at once and predicted by the
    masked-LM head, as in fairseq's examples/roberta/wsc/wsc_criterion.py. Works with our models and fairseq's.

    Shapes: B examples, S their sequences, T positions, M tokens of all phrases, V vocabulary.
    """
    inputs, lengths = sample["net_input"], sample["net_input"]["src_lengths"]
    counts = sample["offsets"].diff()
    before, after = (
        sample["columns"][name].repeat_interleave(counts, output_size=len(lengths)) for name in ("before", "after")
    )  # (B,) -> (S,)
    tokens = inputs["src_tokens"]
    begins = _begins(inputs) + before
    sizes = lengths - before - after  # tokens of the phrases (S,)
    sequence = torch.arange(len(lengths), device=tokens.device).repeat_interleave(sizes)  # the sequence of each (M,)
    within = torch.arange(len(sequence), device=tokens.device) - (sizes.cumsum(0) - sizes)[sequence]
    places = begins[sequence] + within  # (M,) in the flat tokens
    is_masked = torch.zeros_like(tokens, dtype=torch.bool).view(-1).index_fill(0, places, True).view_as(tokens)
    masked = tokens.masked_fill(is_masked, mask_id)
    logits, _ = model(**{**inputs, "src_tokens": masked}, masked_tokens=is_masked)  # (M, V)
    log_probs = logits.float().log_softmax(dim=-1).gather(1, tokens.view(-1)[places, None])  # (M, V) -> (M, 1)
    sums = torch.zeros(len(lengths), 1, device=tokens.device).index_add(0, sequence, log_probs)  # (M, 1) -> (S, 1)
    means: Tensor = sums / sizes.clamp(min=1)[:, None]
    return means


def _begins(inputs: Mapping[str, Any]) -> Tensor:
    """The place of each sequence's first token in the flat tokens (S,)."""
    lengths: Tensor = inputs["src_lengths"]
    if "packing" in inputs:
        return lengths.cumsum(0) - lengths
    width: int = inputs["src_tokens"].size(1)
    return torch.arange(len(lengths), device=lengths.device) * width
