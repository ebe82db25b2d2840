"""Span loss plus answerability loss, for SQuAD 2.0 and 1.1 (paper section 5.2).

The start and the end of the answer are each a softmax over the passage's tokens, trained on windows that contain the
answer. Whether a window contains it is a binary classification, trained on all windows.

Shapes: B windows in the batch, T positions.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from roberta_plugin.criterions.base import FineTuningCriterion, Loss
from roberta_plugin.kinds.questions import MAX_ANSWER_LENGTH
from roberta_plugin.settings import setting

_NOT_HERE = -100


@dataclass
class Squad2CriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    max_answer_length: int = setting(MAX_ANSWER_LENGTH, "most tokens of an answer, in validation")


@register_criterion("squad2", dataclass=Squad2CriterionConfig)
class Squad2Criterion(FineTuningCriterion):
    """Sum over windows of both losses; `sample_size` is the number of windows."""

    name = "squad2"

    def __init__(self, task: Any, max_answer_length: int) -> None:
        super().__init__(task)
        self.max_answer_length = max_answer_length

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """Refuse options that cannot work."""
        if cfg.max_answer_length < 1:
            raise ValueError(f"--max-answer-length must be 1 or more, got {cfg.max_answer_length}.")

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        """Build it for the task of its name, and refuse others."""
        cls.check_options(cfg)
        return super().build_criterion(cfg, task)

    @property
    def judging(self) -> Mapping[str, Any]:
        """See `FineTuningCriterion.judging`: the longest answer."""
        return {"max_answer_length": self.max_answer_length}

    def loss(self, outputs: Any, sample: dict[str, Any]) -> Loss:
        """Return the loss in nats of `SpanLogits` (B, T); the columns are those of `kinds/passages.py`."""
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
    """Which positions of `like` (B, T) lie from `start` (B,) to before `stop` (B,)."""
    positions = torch.arange(like.size(1), device=like.device)
    return (positions >= start[:, None]) & (positions < stop[:, None])


def log_probabilities(logits: Tensor, is_choice: Tensor) -> Tensor:
    """Logits (B, T) -> log-probabilities among the choices (B, T), fp32, -inf elsewhere."""
    return logits.float().masked_fill(~is_choice, -torch.inf).log_softmax(dim=1)


def span_part(log_probs: Tensor, position: Tensor, has_answer: Tensor) -> Tensor:
    """Summed cross-entropy () of the positions (B,), over windows that contain the answer."""
    target = position.masked_fill(has_answer.eq(0), _NOT_HERE)
    return F.nll_loss(log_probs, target, ignore_index=_NOT_HERE, reduction="sum")
