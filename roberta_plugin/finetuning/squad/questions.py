"""A prepared split as questions with their right answers; and a span of a window as text of the passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.squad.metrics import AnswerScore, score


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

    @cached_property
    def right(self) -> Mapping[str, Sequence[str]]:
        """The right answers by id; only of a labelled split."""
        return {id_: answers or () for id_, answers in zip(self.ids, self.answers, strict=True)}

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
