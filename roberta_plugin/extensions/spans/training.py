"""The loss of answers in a passage: start, end and answerability (paper section 5.2).

Shapes: B windows in the batch, T positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss

_NOT_HERE = -100


class SpanTraining(KindTraining):
    """Learns where the answer begins and ends in each window, and if the window contains it."""

    means = ("span_loss", "answerable_loss")

    @override
    def loss(self, criterion: Criterion, outputs: Any, sample: Mapping[str, Any]) -> Loss:
        """Both losses of `SpanLogits` (B, T). `extensions/spans/questions.py` describes the columns.

        The start and the end of the answer are each a softmax over the passage's tokens, trained on windows that
        contain the answer. Whether a window contains it is a binary classification, trained on all windows.
        """
        columns, first = sample["columns"], sample["columns"]["passage"]
        in_passage = between(outputs.start, first, first + columns["passage_length"])
        starts, ends = (log_probabilities(values, in_passage) for values in (outputs.start, outputs.end))
        has_answer = columns["has_answer"]
        span_loss = 0.5 * (
            span_part(starts, columns["start"], has_answer) + span_part(ends, columns["end"], has_answer)
        )
        answerable_loss = F.binary_cross_entropy_with_logits(
            outputs.answerable.float(), has_answer.float(), reduction="sum"
        )
        means = {"span_loss": (span_loss, has_answer.sum()), "answerable_loss": (answerable_loss, len(first))}
        return Loss(span_loss + answerable_loss, len(first), means)


def between(like: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    """True for the positions of `like` (B, T) that lie from `start` (B,) to before `stop` (B,)."""
    positions = torch.arange(like.size(1), device=like.device)
    return (positions >= start[:, None]) & (positions < stop[:, None])


def log_probabilities(logits: Tensor, is_choice: Tensor) -> Tensor:
    """Logits (B, T) -> log-probabilities among the choices (B, T), fp32, -inf elsewhere."""
    return logits.float().masked_fill(~is_choice, -torch.inf).log_softmax(dim=1)


def span_part(log_probs: Tensor, position: Tensor, has_answer: Tensor) -> Tensor:
    """Summed cross-entropy () of the positions (B,), over windows that contain the answer."""
    target = position.masked_fill(has_answer.eq(0), _NOT_HERE)
    return F.nll_loss(log_probs, target, ignore_index=_NOT_HERE, reduction="sum")
