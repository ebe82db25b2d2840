"""The loss of each kind, of a batch's outputs (`FineTuningTask.outputs`): summed over what is learned.

classification         cross-entropy over the labels
multi_label            binary cross-entropy of each label
regression             squared error
pair_ranking           cross-entropy over the sentences of a question and "none of them"
phrase_ranking         the right phrase against its rivals
multiple_choice        cross-entropy over the options of a question (paper section 5.3)
tagging                cross-entropy of each token that has a label
question_answering     start, end and answerability (paper section 5.2)
summary                binary cross-entropy of each sentence (Liu and Lapata 2019, section 3.2)
embedding              `criterions/embedding.py`

fairseq divides by the sum of the sample sizes, so in a gradient each example, token or sentence of an update weighs the
same, in whichever batch and on whichever rank it is.

Shapes: B examples in the batch, S sequences of all of them, T positions (or P of one packed row), C classes, V
sentences of documents, O = S - B + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.kinds.words import IGNORED

MEANS: Mapping[str, tuple[str, ...]] = {"question_answering": ("span_loss", "answerable_loss")}
"""Kind -> `Loss.means` that are no metrics of the kind."""
_NOT_HERE = -100


class Criterion(Protocol):
    """What a loss asks of the criterion, `base.FineTuningCriterion`."""

    task: Any
    options: Mapping[str, Any]
    training: bool

    @property
    def smoothing(self) -> float:
        """The share of the target that is spread over all labels."""

    def label_weights(self, logits: Tensor) -> Tensor | None:
        """How much each label counts (C,), if not all the same."""


class Loss(NamedTuple):
    """The loss of a batch."""

    total: Tensor
    """The sum () over what is learned."""
    sample_size: int | Tensor
    """What fairseq divides it by, with those of all batches and ranks of an update."""
    means: Mapping[str, tuple[Tensor, int | Tensor]] = MappingProxyType({})
    """Further figures of the log: sums, and what they are divided by."""


def classification(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Cross-entropy of logits (B, C).

    With weights of the labels, each example counts as much as its label, in the loss and in the number of examples:
    an update then has the gradient of torch's weighted mean over its whole batch.
    """
    logits = outputs.float()
    labels, weights = sample["columns"]["label"].long(), criterion.label_weights(logits)
    loss = F.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=criterion.smoothing)
    return Loss(loss, len(labels) if weights is None else weights[labels].sum())


def multi_label(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Binary cross-entropy of logits (B, C), the mean over labels; a label's weight is that of its presence."""
    logits = outputs.float()
    labels, weights = sample["columns"]["labels"].to(logits.dtype), criterion.label_weights(logits)  # (B, C), (C,)
    loss = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights, reduction="sum") / labels.size(1)
    return Loss(loss, len(labels))


def regression(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Squared error of outputs (B, 1) to the labels: STS-B's from 0 to 1, own ones with mean 0 and deviation 1."""
    mean, deviation = criterion.task.kind.scale
    labels = ((sample["columns"]["label"] - mean) / deviation).float()
    return Loss(F.mse_loss(outputs[:, 0].float(), labels, reduction="sum"), len(labels))


def pair_ranking(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Cross-entropy of logits (S, 1) over each question's sentences and "none of them", whose logit is 0."""
    counts, answers = sample["offsets"].diff(), sample["columns"]["answer"]
    choices = by_example(outputs[:, 0].float(), sample["offsets"])  # (S,) -> (B, O), -inf where there is no sentence
    choices = F.pad(choices, (0, 1))  # (B, O) -> (B, O + 1): "none of them" comes last
    loss = F.cross_entropy(choices, answers.where(answers < counts, choices.size(1) - 1), reduction="sum")
    return Loss(loss, len(answers))


def phrase_ranking(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Ranking loss of the log-probabilities (S, 1): each example's first phrase against the others, if it is right.

    The loss is that of fairseq's examples/roberta/wsc/wsc_criterion.py, after Kocijan et al. 2019: for each rival,
    -right + alpha * max(0, rival - right + beta). Neither paper states alpha and beta; the defaults are those
    of fairseq's recipe for WinoGrande.
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


def multiple_choice(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Cross-entropy of logits (S, 1) over each question's options, of which there may be any number."""
    choices, labels = by_example(outputs[:, 0].float(), sample["offsets"]), sample["columns"]["label"]  # (B, O), (B,)
    loss = F.cross_entropy(choices, labels, reduction="sum")
    if criterion.smoothing:  # over the options that there are
        logs = choices.log_softmax(dim=1).masked_fill(choices.isinf(), 0)  # (B, O)
        even = (logs.sum(dim=1) / sample["offsets"].diff()).sum()
        loss = (1 - criterion.smoothing) * loss - criterion.smoothing * even
    num_correct = choices.detach().argmax(dim=1).eq(labels).sum()
    return Loss(loss, len(labels), {"accuracy": (100.0 * num_correct, len(labels))})


def tagging(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Cross-entropy of logits (S, T, C) at the tokens that have a label."""
    loss = F.cross_entropy(
        outputs.flatten(0, 1).float(),
        sample["token_labels"].flatten(),  # (S, T) -> (S * T,)
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=criterion.smoothing,
    )
    return Loss(loss, sample["num_labels"])


def question_answering(criterion: Criterion, outputs: Any, sample: Mapping[str, Any]) -> Loss:
    """Both losses of `SpanLogits` (B, T); the columns are those of `kinds/questions.py`.

    The start and the end of the answer are each a softmax over the passage's tokens, trained on windows that contain
    the answer. Whether a window contains it is a binary classification, trained on all windows.
    """
    columns, first = sample["columns"], sample["columns"]["passage"]
    in_passage = between(outputs.start, first, first + columns["passage_length"])
    starts, ends = (log_probabilities(values, in_passage) for values in (outputs.start, outputs.end))
    has_answer = columns["has_answer"]
    span_loss = 0.5 * (span_part(starts, columns["start"], has_answer) + span_part(ends, columns["end"], has_answer))
    answerable_loss = F.binary_cross_entropy_with_logits(
        outputs.answerable.float(), has_answer.float(), reduction="sum"
    )
    means = {"span_loss": (span_loss, has_answer.sum()), "answerable_loss": (answerable_loss, len(first))}
    return Loss(span_loss + answerable_loss, len(first), means)


def summary(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """Binary cross-entropy of logits (V,)."""
    logits, labels = outputs.float(), sample["sentences"]["labels"]
    loss = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
    num_correct = (logits.detach() > 0).eq(labels.bool()).sum()
    return Loss(loss, len(labels), {"accuracy": (100.0 * num_correct, len(labels))})


def by_example(logits: Tensor, first: Tensor) -> Tensor:
    """Logits (S,) of competing sequences, of which example b has those from first[b] to first[b + 1] -> (B, O).

    O = S - B + 1 bounds the number of sequences of an example, and is known without a device-to-host sync.

    Example: by_example([a, b, c, d, e], [0, 3, 5])  ->  [[a, b, c, -inf], [d, e, -inf, -inf]]
    """
    num_sequences, num_examples = len(logits), len(first) - 1
    rows = torch.arange(num_examples, device=logits.device)
    example = rows.repeat_interleave(first.diff(), output_size=num_sequences)  # (S,)
    place = torch.arange(num_sequences, device=logits.device) - first[example]  # (S,), within the example
    choices = logits.new_full((num_examples, num_sequences - num_examples + 1), -torch.inf)
    return choices.index_put((example, place), logits)


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


LossOfKind = Callable[[Criterion, Any, Mapping[str, Any]], Loss]
