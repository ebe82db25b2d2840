"""Questions about passages, in windows: `SplitMaker` writes a split, `Questions` reads it, `decode` finds answers.

An example is a window, `<s> question </s> </s> part </s>`.

Columns: `question`, the index of the question; `passage`, the position in the window of the first token of the
passage's part, `passage_token`, its index in the passage, and `passage_length`, the tokens of the part; `best_start`
and `best_stop`, the range of positions whose best window this is (see `windows`); `has_answer`, 1 if the answer is in
the window, else 0; `start` and `end`, the positions of the answer's first and last token, or 0.

Records: {"passage": number, "text"} for each passage, and {"question": number, "id", "text", "passage", "answers"} for
each question, whose answers are texts, or null if they are not known.

Arrays about the tokens of all passages, one passage after the other: `char_starts` and `char_ends`, the characters of a
token, and `is_blank`, True if it is only white space. Passage i has tokens `first_token[i]` to `first_token[i + 1]`.

For each window the model gives the probability that it holds the answer, and the probabilities of where the answer then
starts and ends. The probability of a span is the product of the three. The spans of all windows of a question compete
with each other. The probability of no answer is 1 - p, where p is the largest probability of a window to hold one.

Shapes: W windows of the split, P tokens of the passage in a window, M most tokens of an answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import LocatedTokens
from roberta_plugin.data.white_space import strip
from roberta_plugin.extensions.spans.answers import END, START, SquadAnswer
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.answer_scores import normalize
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.scripts import has_characters, is_of_characters
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.windows import (
    BEFORE_PASSAGE,
    NUM_SPECIALS,
    Window,
    WindowLayout,
    cut,
    is_blank,
    tokens_of,
)
from roberta_plugin.finetuning.prepared import DIVIDED, PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import as_read
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

MAX_ANSWER_LENGTH = 30
N_BEST = 20


class SplitMaker:
    """Writes all windows of the questions of a split.

    Attributes:
        doubtful: answers that are not at their `answer_start`, or that differ from the text of their tokens.
    """

    def __init__(
        self, split: SplitWriter, examples: Sequence[Example], encoder: Encoder, layout: WindowLayout, *, is_train: bool
    ) -> None:
        """The texts of the `examples` are passage and question; their targets are answers, or None if not known."""
        self._split, self._examples, self._encoder, self._layout = split, examples, encoder, layout
        self._is_train = is_train
        self._counts: Counter[str] = Counter()
        self.doubtful = [
            {**_entry(example, answer), "found_at": answer.start}
            for example in examples
            for answer in example.target or ()
            if answer.is_doubtful
        ]

    def run(self) -> None:
        """Write the split, and count what is cut."""
        split, examples, counts = self._split, self._examples, self._counts
        numbers: dict[str, int] = {}
        for example in examples:
            numbers.setdefault(example.texts[0], len(numbers))
        texts = list(numbers)
        passages = [
            self._locate(text, number) for text, number in terminal_bar(numbers.items(), split.name, unit=" passages")
        ]
        split.array("char_starts", np.concatenate([passage.starts for passage in passages]))
        split.array("char_ends", np.concatenate([passage.ends for passage in passages]))
        blank = [is_blank(text, passage) for text, passage in zip(texts, passages, strict=True)]
        split.array("is_blank", np.concatenate(blank))
        split.array("first_token", np.cumsum([0, *(len(passage.ids) for passage in passages)]))
        ids = self._encoder.ids_of_all([strip(as_read(example.texts[1], "spaces")) for example in examples])
        for example, question_ids in zip(examples, ids, strict=True):
            number = numbers[example.texts[0]]
            target = self._target(example, passages[number])
            if self._is_train and example.target and target is None:
                continue  # the passage does not contain the answer, as SPLIT.doubtful.jsonl says
            answers = None if example.target is None else [answer.text for answer in example.target]
            content = {"question": counts["questions"], "id": example.id, "text": example.texts[1]}
            split.record({**content, "passage": number, "answers": answers})
            self._add_windows(question_ids, passages[number], target)
            counts["questions"] += 1
        if counts["fit no window"]:
            then = "their windows are trained as if without an answer" if self._is_train else "no model can find them"
            logger.warning(
                f"{split.name}: the answers to {counts['fit no window']:,} of {counts['questions']:,} questions fit "
                f"into no window, so that {then}: lower --doc-stride, or raise --max-length"
            )

    def _locate(self, text: str, number: int) -> LocatedTokens:
        self._split.record({"passage": number, "text": text})
        where = f"{self._examples[0].path}, the passage that begins with {text[:40]!r}"
        try:
            tokens = self._encoder.tokenizer.locate(as_read(text, "spaces"))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if not len(tokens.ids):
            raise ValueError(f"{where}: it has no tokens. Remove it, or use another tokenizer.")
        return tokens

    def _target(self, example: Example, passage: LocatedTokens) -> tuple[int, int] | None:
        """First and last token of the answer to learn: if possible, the first answer that whole tokens spell."""
        inexact = []
        for answer in example.target or ():
            text = answer.text.strip()  # a token may start with the space after the answer
            start = answer.start + len(answer.text) - len(answer.text.lstrip())
            span = tokens_of(passage, start, start + len(text)) if answer.start >= 0 else None
            if span is None:
                continue
            covered = example.texts[0][passage.starts[span[0]] : passage.ends[span[1]]]
            if normalize(covered) == normalize(answer.text):
                return span
            inexact.append(span)
            entry = {**_entry(example, answer), "answer_start": answer.start, "found_at": answer.start}
            self.doubtful.append({**entry, "tokens": covered.strip()})
        return inexact[0] if inexact else None

    def _add_windows(
        self, question_ids: NDArray[np.int32], passage: LocatedTokens, target: tuple[int, int] | None
    ) -> None:
        layout = self._layout
        self._split.measure("questions", len(question_ids), limit=layout.question_length)
        question_ids = question_ids[: layout.question_length]
        passage_ids = self._encoder.to_model_id[passage.ids]
        num_tokens = len(question_ids) + len(passage_ids) + NUM_SPECIALS
        self._split.measure("questions with their passage", num_tokens, limit=layout.max_length, fate=DIVIDED)
        windows = list(windows_of(question_ids, passage_ids, layout, self._encoder))
        fits = target is None or any(window.holds(target) for window, _, _ in windows)
        self._counts["fit no window"] += not fits
        for window, sequence, columns in windows:
            shift = columns["passage"] - window.start
            start, end = (token + shift for token in target) if target and window.holds(target) else (0, 0)
            self._split.add(
                [sequence],
                question=self._counts["questions"],
                **columns,
                has_answer=int(end > 0),
                start=start,
                end=end,
            )


def windows_of(
    question_ids: NDArray[np.int32], passage_ids: NDArray[np.int32], layout: WindowLayout, encoder: Encoder
) -> Iterator[tuple[Window, NDArray[np.int32], dict[str, int]]]:
    """Each window of a passage, its model input (T,), and its columns `passage` to `best_stop`."""
    position = len(question_ids) + BEFORE_PASSAGE
    room = layout.max_length - NUM_SPECIALS - len(question_ids)
    for window in cut(len(passage_ids), room=room, stride=layout.doc_stride):
        part = passage_ids[window.start : window.start + window.length]
        shift = position - window.start
        columns = {
            "passage": position,
            "passage_token": window.start,
            "passage_length": window.length,
            "best_start": window.best_start + shift,
            "best_stop": window.best_stop + shift,
        }
        yield window, encoder.join(question_ids, part, max_length=layout.max_length), columns


def _entry(example: Example, answer: SquadAnswer) -> dict[str, Any]:
    end = {} if answer.answer_end is None else {END: answer.answer_end}
    return {"id": example.id, "answer": answer.text, START: answer.answer_start, **end}


class Questions:
    """Questions of a prepared split.

    Attributes:
        ids: the id of each question.
        answers: texts of the right answers to each question; empty if it has none, None if they are not known.
    """

    def __init__(self, split: PreparedSplit) -> None:
        self.split = split
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
        """True if the right answers to all questions are known."""
        return all(answers is not None for answers in self.answers)

    @cached_property
    def by_characters(self) -> list[bool]:
        """True for each question whose answers are compared by characters (`scripts`): its passage is in such a script,
        or one of its answers has such a character."""
        are_passages = [is_of_characters(passage) for passage in self._passages]
        return [
            are_passages[passage] or any(map(has_characters, answers or ()))
            for passage, answers in zip(self._passage_of, self.answers, strict=True)
        ]

    def characters(self, window: int, start: int, end: int) -> tuple[int, int]:
        """Positions `start` to `end` of a window -> characters of the passage, without white space around them.

        Example: the positions of the tokens " New" and " York" in "In New York." -> (3, 11).
        """
        question = self.columns["question"][window]
        passage = self._passage_of[question]
        shift = self.columns["passage_token"][window] - self.columns["passage"][window]
        shift += int(self.tokens["first_token"][passage])
        first, stop = int(self.tokens["char_starts"][shift + start]), int(self.tokens["char_ends"][shift + end])
        text = self._passages[passage][first:stop]
        return first + len(text) - len(text.lstrip()), first + len(text.rstrip())

    def text(self, window: int, start: int, end: int) -> str:
        """The passage's own text at the positions `start` to `end` of a window."""
        first, stop = self.characters(window, start, end)
        passage: str = self._passages[self._passage_of[self.columns["question"][window]]]
        return passage[first:stop]

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
        """True for each token of the passage in a window that is only white space (tokens,)."""
        passage = self._passage_of[self.columns["question"][window]]
        first = int(self.tokens["first_token"][passage]) + self.columns["passage_token"][window]
        blank: NDArray[np.bool_] = self.tokens["is_blank"][first : first + self.columns["passage_length"][window]]
        return blank

    @cached_property
    def tokens(self) -> dict[str, NDArray[Any]]:
        """The arrays about the tokens of all passages, by name."""
        return {name: self.split.array(name) for name in ("is_blank", "char_starts", "char_ends", "first_token")}


class Candidate(NamedTuple):
    """A possible answer."""

    text: str
    log_probability: float
    start: int
    """First character in the passage."""
    stop: int
    """The character after the last one."""


class RankedAnswers(NamedTuple):
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
) -> list[RankedAnswers]:
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
        candidates = []
        for window in windows.tolist():
            of_members = ([scores[window] for scores in starts], [scores[window] for scores in ends])
            spans = best_of_window(questions, window, *of_members, number=n_best, max_answer_length=max_answer_length)
            candidates += [(in_window[window] + value, window, start, end) for value, start, end in spans]
        candidates.sort(key=lambda span: -span[0])
        result.append(RankedAnswers(_keep_distinct(questions, candidates, n_best), float(null[windows].min())))
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
    """The best spans of a window: log-probability if the window holds the answer, first position, last position.

    A span starts with a token whose best window this is and that is not blank, so that its text is not empty. There may
    be no such span. `starts` and `ends` are each member's logits for the window's positions.
    """
    columns = questions.columns
    first, length = columns["passage"][window], columns["passage_length"][window]
    part = slice(first, first + length)
    begin, end = (_mean_log_probabilities([scores[part] for scores in each]) for each in (starts, ends))
    allowed = slice(columns["best_start"][window] - first, columns["best_stop"][window] - first)
    begin[questions.is_blank(window)] = -np.inf
    values, firsts, lasts = best_spans(begin, end, allowed, number=number, length=max_answer_length)
    return list(zip(values.tolist(), (firsts + first).tolist(), (lasts + first).tolist(), strict=True))


def best_spans(
    starts: NDArray[np.float64], ends: NDArray[np.float64], allowed_starts: slice, *, number: int, length: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The spans with the greatest sums of a start score (P,) and an end score (P,).

    Example: starts [0, 3, 1], ends [2, 0, 2], one span of at most 2 tokens -> the span from token 1 to 2, score 5.

    Returns:
        Scores, first and last tokens, the best span first. Ties go to the span that starts, then ends, earlier.
    """
    padded = np.concatenate([ends, np.full(length - 1, -np.inf)])
    following = np.lib.stride_tricks.sliding_window_view(padded, length)  # (P, M): the ends from each start on
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


def _keep_distinct(questions: Questions, spans: Sequence[tuple[Any, ...]], number: int) -> list[Candidate]:
    """The first `number` candidates with distinct texts."""
    candidates: dict[str, Candidate] = {}
    for value, window, start, end in spans:
        text = questions.text(window, start, end)
        if text not in candidates:
            candidates[text] = Candidate(text, float(value), *questions.characters(window, start, end))
            if len(candidates) == number:
                break
    return list(candidates.values())
