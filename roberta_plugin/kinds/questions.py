"""Questions of a split, and raw outputs for all windows -> the best answers and the probability that there is none.

For each window the model gives the probability that it holds the answer, and where the answer then starts and ends. The
probability of a span is the product of the three. The spans of all windows of a question compete with each other. The
probability of no answer is that of the window which is most likely to hold one: 1 - its probability of holding it.

Shapes: W windows of the split, P tokens of the passage in a window, M most tokens of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.span_metrics import AnswerScore, score

MAX_ANSWER_LENGTH = 30
N_BEST = 20


class Questions:
    """Questions of a prepared split of `task`.

    Attributes:
        ids: of the questions.
        answers: texts of the right answers to each; empty if it has none, None if they are not known.
    """

    def __init__(self, split: PreparedSplit, task: str) -> None:
        self.split, self.task = split, task
        self._passages: list[str] = []
        records: list[dict[str, Any]] = []
        for record in split.records():
            if "question" in record:
                records.append(record)
            else:
                self._passages.append(record["text"])
        self.ids: list[str] = [record["id"] for record in records]
        self.answers: list[list[str] | None] = [record["answers"] for record in records]
        self._passage_of = [record["passage"] for record in records]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_labelled(self) -> bool:
        """Whether the right answers to all questions are known."""
        return all(answers is not None for answers in self.answers)

    def characters(self, window: int, start: int, end: int) -> tuple[int, int]:
        """Positions `start` to `end` of a window -> characters of the passage, without white space around them.

        Example: the positions of the tokens " New" and " York" in "In New York." -> (3, 11).
        """
        question = self.columns["question"][window]
        passage = self._passage_of[question]
        shift = self._first_token[passage] + self.columns["passage_token"][window] - self.columns["passage"][window]
        first, stop = int(self._char_starts[shift + start]), int(self._char_ends[shift + end])
        text = self._passages[passage][first:stop]
        return first + len(text) - len(text.lstrip()), first + len(text.rstrip())

    def text(self, window: int, start: int, end: int) -> str:
        """The passage's own text at the positions `start` to `end` of a window."""
        first, stop = self.characters(window, start, end)
        passage: str = self._passages[self._passage_of[self.columns["question"][window]]]
        return passage[first:stop]

    def score(self, window: int, text: str) -> AnswerScore:
        """Exact match and F1 of a text as the answer to the question of a window."""
        return score(self.task, text, self.answers[self.columns["question"][window]] or ())

    def has_answer(self, window: int) -> bool:
        """Whether the question of a window has an answer."""
        return bool(self.answers[self.columns["question"][window]])

    @cached_property
    def windows_of(self) -> list[NDArray[np.int64]]:
        """The windows of each question, in order."""
        numbers = np.asarray(self.split.columns["question"])
        order = np.argsort(numbers, kind="stable")
        return np.split(order, np.searchsorted(numbers[order], np.arange(1, len(self))))

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """The split's columns as lists, whose single numbers are faster to read."""
        return {name: values.tolist() for name, values in self.split.columns.items()}

    def is_blank(self, window: int) -> NDArray[np.bool_]:
        """Whether each token of the passage in a window is only white space (tokens,)."""
        passage = self._passage_of[self.columns["question"][window]]
        first = self._first_token[passage] + self.columns["passage_token"][window]
        blank: NDArray[np.bool_] = self._is_blank[first : first + self.columns["passage_length"][window]]
        return blank

    @cached_property
    def _is_blank(self) -> NDArray[np.bool_]:
        return self.split.array("is_blank")

    @cached_property
    def _char_starts(self) -> NDArray[np.int32]:
        return self.split.array("char_starts")

    @cached_property
    def _char_ends(self) -> NDArray[np.int32]:
        return self.split.array("char_ends")

    @cached_property
    def _first_token(self) -> list[int]:
        first: list[int] = self.split.array("first_token").tolist()
        return first


class Candidate(NamedTuple):
    """A possible answer."""

    text: str
    log_probability: float
    start: int
    """First character in the passage."""
    stop: int
    """The character after the last one."""


class Decoded(NamedTuple):
    """The answers to a question."""

    candidates: list[Candidate]
    """The most probable first, with distinct texts."""
    null_probability: float
    """Probability that the question has no answer."""


def decode(
    questions: Questions,
    members: Sequence[RawOutputs],
    *,
    n_best: int = N_BEST,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[Decoded]:
    """The best answers of all questions of a split, by the mean of the members' probabilities."""
    logits = [member.answerable_logits for member in members if member.answerable_logits is not None]
    starts = [member.start_logits for member in members if member.start_logits is not None]
    ends = [member.end_logits for member in members if member.end_logits is not None]
    assert len(logits) == len(starts) == len(ends) == len(members) > 0, "these are not outputs of a span head"
    in_window = scipy.special.logsumexp(scipy.special.log_expit(np.array(logits, dtype=np.float64)), axis=0) - np.log(
        len(members)
    )  # (W,)
    null = scipy.special.expit(-np.array(logits, dtype=np.float64)).mean(axis=0)  # (W,), exact for tiny values
    result = []
    for windows in questions.windows_of:
        found = []
        for window in windows.tolist():
            of_members = ([scores[window] for scores in starts], [scores[window] for scores in ends])
            spans = best_of_window(questions, window, *of_members, number=n_best, max_answer_length=max_answer_length)
            found += [(in_window[window] + value, window, start, end) for value, start, end in spans]
        found.sort(key=lambda span: -span[0])
        result.append(Decoded(_different(questions, found, n_best), float(null[windows].min())))
    return result


def best_of_window(
    questions: Questions,
    window: int,
    starts: Sequence[NDArray[np.float32]],
    ends: Sequence[NDArray[np.float32]],
    *,
    number: int = 1,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[tuple[float, int, int]]:
    """The best spans of a window: log-probability, given that the window holds the answer; first and last position.

    A span starts with a token whose best window this is and that is not blank, so that its text is not empty. There may
    be no such span. `starts` and `ends` are each member's logits of the window's positions.
    """
    columns = questions.columns
    first, length = columns["passage"][window], columns["passage_length"][window]
    part = slice(first, first + length)
    begin = _mean_log_probabilities([scores[part] for scores in starts])
    own = slice(columns["best_start"][window] - first, columns["best_stop"][window] - first)
    begin[questions.is_blank(window)] = -np.inf
    values, firsts, lasts = best_spans(
        begin, _mean_log_probabilities([scores[part] for scores in ends]), own, number=number, length=max_answer_length
    )
    return list(zip(values.tolist(), (firsts + first).tolist(), (lasts + first).tolist(), strict=True))


def best_spans(
    starts: NDArray[np.float64], ends: NDArray[np.float64], allowed_starts: slice, *, number: int, length: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The spans with the greatest sums of a start score (P,) and an end score (P,).

    Example: starts [0, 3, 1], ends [2, 0, 2], one span of at most 2 tokens -> the span from token 1 to 2, score 5.

    Returns:
        Scores, first and last tokens; the best first; ties go to the span that starts, then ends, earlier.
    """
    padded = np.concatenate([ends, np.full(length - 1, -np.inf)])
    following = np.lib.stride_tricks.sliding_window_view(padded, length)  # (P, M): ends from each start on
    sums = (starts[allowed_starts, None] + following[allowed_starts]).ravel()
    count = min(number, sums.size)
    chosen = np.sort(np.argpartition(-sums, count - 1)[:count]) if count else np.empty(0, dtype=np.int64)
    chosen = chosen[np.argsort(-sums[chosen], kind="stable")]
    chosen = chosen[np.isfinite(sums[chosen])]
    begin, extra = np.divmod(chosen, length)
    begin = begin + allowed_starts.start
    return sums[chosen], begin, begin + extra


def _mean_log_probabilities(members: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Logits (P,) of each member -> logarithm of the mean of their probabilities (P,)."""
    mean: NDArray[np.float64] = scipy.special.logsumexp(
        scipy.special.log_softmax(np.array(members, dtype=np.float64), axis=1), axis=0
    ) - np.log(len(members))
    return mean


def _different(questions: Questions, spans: Sequence[tuple[Any, ...]], number: int) -> list[Candidate]:
    """The first `number` candidates with distinct texts."""
    candidates: dict[str, Candidate] = {}
    for value, window, start, end in spans:
        text = questions.text(window, start, end)
        if text not in candidates:
            candidates[text] = Candidate(text, float(value), *questions.characters(window, start, end))
            if len(candidates) == number:
                break
    return list(candidates.values())
