"""Span loss plus answerability loss, for SQuAD 2.0 and 1.1 (paper section 5.2).

The start and the end of the answer are each a softmax over the passage's tokens, trained on windows that contain the
answer. Whether a window contains it is a binary classification, trained on all windows.

Shapes: B windows in the batch, T positions, N windows of the split, Q questions of it.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics as fairseq_metrics
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.criterions import metrics
from roberta_plugin.criterions.base import FineTuningCriterion
from roberta_plugin.kinds.questions import MAX_ANSWER_LENGTH, best_of_window
from roberta_plugin.kinds.span_metrics import best_threshold
from roberta_plugin.settings import setting

_NOT_HERE = -100
_NULL_THRESHOLD = {"squad1": 1.0, "squad2": 0.5}  # a question counts as not answered above it
_SCORE, _EXACT, _F1, _ANSWERABLE, _QUESTION, _HAS_ANSWER, _IS_GIVEN = range(7)  # columns of a window's log


@dataclass
class Squad2CriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    max_answer_length: int = setting(MAX_ANSWER_LENGTH, "most tokens of an answer, in validation", smallest=1)


@register_criterion("squad2", dataclass=Squad2CriterionConfig)
class Squad2Criterion(FineTuningCriterion):
    """Sum over windows of both losses; `sample_size` is the number of windows."""

    name = "squad2"

    def __init__(self, task: Any, max_answer_length: int) -> None:
        super().__init__(task)
        self.max_answer_length = max_answer_length

    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Return (loss in nats, number of windows, sums to log); the columns are those of `kinds/passages.py`."""
        columns = sample["columns"]
        logits = self.task.outputs(model, sample)
        first = columns["passage"]
        in_passage = between(logits.start, first, first + columns["passage_length"])
        starts, ends = (log_probabilities(values, in_passage) for values in (logits.start, logits.end))
        has_answer = columns["has_answer"]
        span_loss = 0.5 * (
            span_part(starts, columns["start"], has_answer) + span_part(ends, columns["end"], has_answer)
        )
        answerable_loss = F.binary_cross_entropy_with_logits(
            logits.answerable.float(), has_answer.float(), reduction="sum"
        )
        loss = span_loss + answerable_loss
        log = {"num_with_answer": has_answer.sum()}
        log |= {"span_loss": span_loss.detach(), "answerable_loss": answerable_loss.detach()}
        if not model.training:
            rows, size, index = self._rows(sample, logits), sample["num_examples"], sample["id"].cpu()
            log[f"windows_{self.task.opened(sample['split']).task}"] = metrics.placed(rows, index, size=size).to(
                first.device
            )
            log["counted"] = metrics.placed(torch.ones(len(rows)), index, size=size).to(first.device)
        return loss, len(first), log

    def _rows(self, sample: dict[str, Any], logits: Any) -> Tensor:
        """Log rows (B, 7) of the windows: score and official metrics of each window's best span."""
        questions = self.task.opened(sample["split"])
        starts, ends, answerable = (values.detach().float().cpu() for values in logits)
        rows = torch.zeros(len(starts), 7, dtype=torch.float64)
        rows[:, _ANSWERABLE] = answerable
        for row, window, start, end in zip(rows, sample["id"].tolist(), starts.numpy(), ends.numpy(), strict=True):
            spans = best_of_window(questions, window, [start], [end], max_answer_length=self.max_answer_length)
            text = questions.text(window, *spans[0][1:]) if spans else ""
            row[_SCORE] = spans[0][0] + F.logsigmoid(row[_ANSWERABLE]) if spans else -torch.inf
            row[_EXACT : _F1 + 1] = torch.tensor(questions.score(window, text), dtype=torch.float64)
            row[_QUESTION] = questions.columns["question"][window]
            row[_HAS_ANSWER], row[_IS_GIVEN] = questions.has_answer(window), text != ""
        return rows

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss and padding; in validation also `exact` and `f1` (percent) of the best answer to each question.

        In SQuAD 2.0 a question counts as unanswered if its null probability exceeds 0.5; `tuned_exact` and `tuned_f1`
        use the best threshold instead.
        """
        outputs = list(logging_outputs)
        metrics.log_finetuning_loss(outputs)
        for name, count in (("span_loss", "num_with_answer"), ("answerable_loss", "sample_size")):
            number = sum(output.get(count, 0) for output in outputs)
            if number > 0:
                fairseq_metrics.log_scalar(name, sum(output[name] for output in outputs) / number, number, round=4)
        for task, threshold in _NULL_THRESHOLD.items():
            sizes = [len(output["counted"]) for output in outputs if f"windows_{task}" in output]
            if not sizes:
                continue
            metrics.log_sum(f"windows_{task}", outputs)
            metrics.log_sum("counted", outputs)
            for name, column in (("exact", _EXACT), ("f1", _F1)):
                function = partial(mean_score, name=f"windows_{task}", column=column, threshold=threshold)
                metrics.log_from_sums(name, function, num_examples=sizes[0])
                if task == "squad2":
                    tuned = partial(tuned_score, name=f"windows_{task}", column=column)
                    metrics.log_from_sums(f"tuned_{name}", tuned, num_examples=sizes[0])


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


def by_question(rows: Tensor) -> dict[str, NDArray[np.float64]]:
    """Log rows of all windows (N, 7) -> "rows" of each question's best window (Q, 7), and "null" probabilities (Q,)."""
    values = rows.numpy()
    order = np.lexsort((np.arange(len(values)), -values[:, _SCORE], values[:, _QUESTION]))
    is_first = np.diff(values[order, _QUESTION], prepend=-1) > 0
    answerable = np.maximum.reduceat(values[order, _ANSWERABLE], np.flatnonzero(is_first))
    best = values[order[is_first]]
    return {"rows": best, "null": torch.from_numpy(-answerable).sigmoid().numpy()}


def mean_score(sums: Mapping[str, Tensor], *, name: str, column: int, threshold: float) -> float:
    """Mean exact match or F1 (percent); a question counts as unanswered if its null probability exceeds `threshold`."""
    questions = by_question(sums[name])
    rows = questions["rows"]
    values = np.where(questions["null"] > threshold, 1.0 - rows[:, _HAS_ANSWER], rows[:, column])
    return 100.0 * float(values.mean())


def tuned_score(sums: Mapping[str, Tensor], *, name: str, column: int) -> float:
    """`mean_score` at the best threshold."""
    questions = by_question(sums[name])
    rows = questions["rows"]
    best, _ = best_threshold(
        rows[:, column].tolist(),
        null=questions["null"].tolist(),
        has_answer=rows[:, _HAS_ANSWER].astype(bool).tolist(),
        is_given=rows[:, _IS_GIVEN].astype(bool).tolist(),
    )
    return best
