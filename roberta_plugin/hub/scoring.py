"""Sentences -> their acceptability to a masked LM: the log-probabilities of their tokens, and one score.

`score_masked` computes the held-out loss instead, on the tokens that a dataset has masked.

    pll            each token is masked in turn; the sum over the tokens of the text (Salazar et al. 2020)
    pll-word-l2r   the later tokens of the same word are masked too, so that a word of many tokens does not reveal
                   itself (Kauf and Ivanova 2023)
    unmasked       nothing is masked; the mean over all tokens with <s> and </s>: minus the mean cross-entropy of
                   Huebner et al. (2021), for models that also learned from tokens that were not masked

A higher score is more acceptable. The tokenizer decides what a word is. For a byte-level BPE with GPT-2's pattern, a
punctuation mark is a word, too.

Shapes: B sequences of a batch, T tokens of a sequence, Q positions to score, M masked tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from roberta_plugin.finetuning.kinds import ScoreMethod
from roberta_plugin.hub import running
from roberta_plugin.hub.core import HubCore

_LARGEST_EXPONENT = 709.0  # the largest argument of exp in float64
_TOKENS_AT_ONCE = 1 << 22  # tokens of masked copies in memory; enough for batches of one length


class Score(NamedTuple):
    """The score of a text, and its parts."""

    score: float
    """Sum or mean of `log_probs`, in nats; higher is more acceptable."""
    tokens: list[str]
    """Texts of the scored tokens."""
    log_probs: list[float]
    """Log-probability of each token, in nats."""


class MaskedScore(NamedTuple):
    """How well a model predicts masked tokens."""

    targets: torch.Tensor
    """Ids of the masked tokens (M,), int64."""
    num_correct: int
    """The number of masked tokens that are the most probable token."""
    log_prob: float
    """Sum of their log-probabilities, in nats."""

    @property
    def accuracy(self) -> float:
        """Percentage of the tokens that are predicted right."""
        return 100.0 * self.num_correct / len(self.targets)

    @property
    def perplexity(self) -> float:
        """exp of the mean cross-entropy; infinite or nan for a model that has diverged."""
        loss = -self.log_prob / len(self.targets)
        return math.inf if loss > _LARGEST_EXPONENT else math.exp(loss)


class Query(NamedTuple):
    """A masked copy of a sequence, and the tokens to score in it."""

    tokens: NDArray[Any]
    """Ids (T,), some of them <mask>."""
    positions: Sequence[int]
    """Positions of the tokens to score (Q,)."""
    targets: NDArray[Any]
    """Ids of these tokens before they were masked (Q,)."""


def score_sequences(
    hub: HubCore, sequences: Sequence[NDArray[Any]], method: ScoreMethod, *, max_tokens: int | None = None
) -> list[Score]:
    """The score of each sequence `<s> a </s>` (T,).

    Raises:
        ValueError: if a sequence has no token, or too many for the model, or holds a <mask>.
    """
    scores: list[Score] = []
    for part in _parts(sequences, is_masked=method != "unmasked"):
        query_lists = [
            queries(hub, sequence, method, f"Text {len(scores) + at}") for at, sequence in enumerate(part, start=1)
        ]
        flat = [query for of_one in query_lists for query in of_one]
        columns = zip(*flat, strict=True)
        answers = iter(hub.token_log_probs(*map(list, columns), max_tokens=max_tokens))
        for of_one in query_lists:
            log_probs = torch.cat([next(answers) for _ in of_one]).double()
            ids = np.concatenate([query.targets for query in of_one]).tolist()
            score = log_probs.mean() if method == "unmasked" else log_probs.sum()
            scores.append(Score(float(score), [hub.codec.shown(token) for token in ids], log_probs.tolist()))
    return scores


def score_masked(
    model: Any, batches: Iterable[Mapping[str, Any]], *, pad_id: int, device: str, split: Path
) -> MaskedScore:
    """The score of a model on batches of a `MaskedLMDataset` of `split`.

    Raises:
        ValueError: if the batches mask no token.
    """
    targets, num_correct, log_prob = [torch.empty(0, dtype=torch.int64)], 0, 0.0

    def run(batch: Mapping[str, Any]) -> None:
        nonlocal num_correct, log_prob
        tokens = batch["net_input"]["src_tokens"].to(device, torch.int64)  # (B, T)
        labels = batch["target"].to(device, torch.int64)  # (B, T)
        is_predicted = labels.ne(pad_id)
        labels = labels[is_predicted]  # (B, T) -> (M,)
        scores = model(tokens, masked_tokens=is_predicted)[0].float().log_softmax(dim=-1)  # (M, V)
        log_prob += float(scores.gather(1, labels[:, None]).double().sum())
        num_correct += int(scores.argmax(dim=-1).eq(labels).sum())
        targets.append(labels.cpu())

    running.run_batches(model, batches, run)
    score = MaskedScore(torch.cat(targets), num_correct, log_prob)
    if not len(score.targets):
        raise ValueError(f"{split}.bin has too few tokens to mask any: use a longer split.")
    return score


def queries(hub: HubCore, sequence: NDArray[Any], method: ScoreMethod, name: str) -> list[Query]:
    """The copies of a sequence (T,) that the model reads to score it, from left to right; `name` is for messages.

    Raises:
        ValueError: if there is nothing to score.
    """
    length, mask_id = len(sequence), hub.vocabulary.mask_id
    try:
        hub.check_length(length)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if length < 3 or mask_id in sequence:
        raise ValueError(f"{name} needs at least one token and no <mask> to be scored: give whole sentences.")
    if method == "unmasked":
        return [Query(sequence, range(length), sequence)]
    ends = np.arange(1, length) + 1
    if method == "pll-word-l2r":
        starts = np.flatnonzero(hub.codec.word_starts(sequence))  # </s> begins the last word
        ends = starts[np.searchsorted(starts, np.arange(1, length), side="right").clip(max=len(starts) - 1)]
    copies = np.repeat(sequence[None], length - 2, axis=0)  # (T - 2, T)
    for position in range(1, length - 1):
        copies[position - 1, position : ends[position - 1]] = mask_id
    return [
        Query(copy, (position,), sequence[position : position + 1]) for position, copy in enumerate(copies, start=1)
    ]


def _parts(sequences: Sequence[NDArray[Any]], *, is_masked: bool) -> Iterator[list[NDArray[Any]]]:
    """The sequences in parts whose copies fit into memory."""
    part: list[NDArray[Any]] = []
    num_tokens = 0
    for sequence in sequences:
        size = len(sequence) * (len(sequence) if is_masked else 1)
        if part and num_tokens + size > _TOKENS_AT_ONCE:
            yield part
            part, num_tokens = [], 0
        part.append(sequence)
        num_tokens += size
    if part:
        yield part
