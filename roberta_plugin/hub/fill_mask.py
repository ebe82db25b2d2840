"""Scores of the masked positions -> the most probable tokens, and the text with each of them in place.

Shapes: M masked positions, V vocabulary, K answers for each.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from roberta_plugin.data.vocabulary import MASK as MASK
from roberta_plugin.hub.texts import TextCodec


class Filling(NamedTuple):
    """One answer of `fill_mask`: the text with the mask filled, the answer's probability, and the answer itself."""

    text: str
    probability: float
    token: str


def best_tokens(logits: Tensor, never: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """Scores (M, V) -> probabilities (M, K) and ids (M, K) of the best tokens, the most probable first.

    The probabilities are those of the softmax over all V; special tokens, `never` (V,), are not answers.
    """
    logits = logits.float()
    total = logits.logsumexp(dim=-1, keepdim=True)
    allowed = logits.masked_fill(never.to(logits.device), float("-inf"))
    best, ids = allowed.topk(min(topk, int((~never).sum())), dim=-1)  # (M, V) -> (M, K)
    return (best - total).exp().cpu(), ids.cpu()


def fill(codec: TextCodec, text: str, which: int, token: int, probability: float) -> Filling:
    """The text with mask number `which` filled by a token."""
    spans = text.split(MASK)
    answer = codec.token_text(token)
    before, after = MASK.join(spans[: which + 1]), MASK.join(spans[which + 1 :])
    # A space before the mask that the model did not see is part of the answer, or there is none.
    return Filling(text=codec.before_mask(before) + answer + after, probability=probability, token=answer)
