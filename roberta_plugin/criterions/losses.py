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
embedding              in-batch negatives, triplets or scores

fairseq divides by the sum of the sample sizes, so in a gradient each example, token or sentence of an update weighs the
same, in whichever batch and on whichever rank it is.

Losses of vectors have the names and values of sentence-transformers. In-batch negatives: each text is compared with the
right and wrong texts of all examples of the batch, on all ranks, and the right one should be the nearest; equal texts
are never wrong for each other. A text that is paired with itself under dropout is SimCSE (Gao et al. 2021, arXiv
2104.08821), whose temperature 0.05 is the scale 20.

Shapes: B examples in the batch, S sequences of all of them, T positions (or P of one packed row), C classes, V
sentences of documents, O = S - B + 1. Of vectors: K texts of an example (the text, the right one, wrong ones), A
examples of all ranks, C = A * (K - 1) candidates, D dimensions, S = B * K sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_plugin.criterions.base import gathered, ranks
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.embedding import COSINE, TRIPLET
from roberta_plugin.finetuning.layouts.words import IGNORED

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
    """Both losses of `SpanLogits` (B, T); the columns are those of `finetuning/kinds/questions.py`.

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


def embedding(criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
    """The loss of the vectors (S, D) of a batch of `EmbeddingDataset`, by the loss that the settings name."""
    num_examples, options = sample["nsentences"], criterion.options
    vectors = outputs if outputs.dtype == torch.float64 else outputs.float()
    vectors = vectors.view(num_examples, -1, vectors.size(-1))  # (S, D) -> (B, K, D)
    loss_name = criterion.task.kind.settings["embedding_loss"]
    if loss_name == COSINE:
        near = F.cosine_similarity(vectors[:, 0], vectors[:, 1])
        return Loss(F.mse_loss(near, sample["columns"]["label"].to(near.dtype), reduction="sum"), num_examples)
    if loss_name == TRIPLET and vectors.size(1) > 2:
        metric = str(options["distance_metric"])
        far = distance(vectors[:, 0], vectors[:, 2], metric) - distance(vectors[:, 0], vectors[:, 1], metric)
        return Loss((options["triplet_margin"] - far).relu().sum(), num_examples)
    return _ranking(criterion, vectors, sample["columns"]["texts"])


def distance(a: Tensor, b: Tensor, metric: str) -> Tensor:
    """Distances (B,) of vectors (B, D)."""
    if metric == "cosine":
        return 1 - F.cosine_similarity(a, b)
    distances: Tensor = torch.linalg.vector_norm(a - b, ord=1 if metric == "manhattan" else 2, dim=-1)
    return distances


def _ranking(criterion: Criterion, vectors: Tensor, texts: Tensor) -> Loss:
    """Cross-entropy of the right text; the sample size is how many examples have a wrong one.

    With several ranks, in training, each computes the losses of all examples, and so the whole loss's gradient with
    respect to its own vectors: the ranks' gradients, added up by fairseq, are those of one rank with all examples. The
    value is that of the rank's own examples.
    """
    size, rank = ranks() if criterion.training else (1, 0)
    all_vectors, all_texts, rows = vectors, texts, slice(0, len(vectors))
    if size > 1:
        is_dummy = criterion.task.is_dummy  # a batch that only keeps a rank busy
        vectors_of, texts_of = (gathered(each[:0] if is_dummy else each) for each in (vectors.detach(), texts))
        first = sum(map(len, vectors_of[:rank]))
        rows = slice(first, first + len(vectors_of[rank]))
        vectors_of[rank] = vectors[: len(vectors_of[rank])]
        all_vectors, all_texts = torch.cat(vectors_of), torch.cat(texts_of)
    losses, has_wrong = ranking_losses(all_vectors, all_texts, scale=criterion.options["scale"])
    total, mine = losses.sum() + 0 * vectors.sum(), losses[rows].sum()
    return Loss(total + (mine - total).detach(), has_wrong[rows].sum())


def ranking_losses(vectors: Tensor, texts: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each example's right text among all candidates (A,), and whether there is a wrong one (A,).

    Args:
        vectors: of all examples (A, K, D).
        texts: the numbers of their texts (A, K), the same for equal texts. A candidate does not count for an example
            if it is the example's own text or its right text once more, or right for an example with the same text.
        scale: factor of the cosines.
    """
    directions = F.normalize(vectors, dim=-1)
    candidates = directions[:, 1:].transpose(0, 1).flatten(0, 1)  # (A, K, D) -> (C, D): the right ones come first
    scores = scale * directions[:, 0] @ candidates.T  # (A, C)
    numbers = texts[:, 1:].T.flatten()  # (C,)
    is_equal = (numbers == texts[:, :1]) | (numbers == texts[:, 1:2])  # (A, C)
    num_examples = len(vectors)
    is_equal[:, :num_examples] |= texts[:, 0] == texts[:, :1]
    is_equal.fill_diagonal_(False)
    right = torch.arange(num_examples, device=scores.device)
    losses = F.cross_entropy(scores.masked_fill(is_equal, -torch.inf), right, reduction="none")
    return losses, is_equal.sum(dim=1) < len(candidates) - 1


LossOfKind = Callable[[Criterion, Any, Mapping[str, Any]], Loss]
LOSSES: dict[str, LossOfKind] = {
    loss.__name__: loss
    for loss in (
        *(classification, multi_label, regression, pair_ranking, phrase_ranking),
        *(multiple_choice, tagging, question_answering, summary, embedding),
    )
}
"""By the name of the kind."""


def find_loss(kind: Kind) -> LossOfKind:
    """The loss of a kind: its own, or that of the kind that it extends."""
    names = (kind.name, *(vars(each).get("name") for each in type(kind).__mro__))
    return next(LOSSES[name] for name in names if name in LOSSES)
