"""QNLI as ranking: the sentences of one question compete to be the one that answers it (paper section 5.1).

QNLI was made by pairing each question of SQuAD with sentences of its paragraph, so that a question has one sentence
that answers it, and the pair most often comes with one that does not. Instead of judging each pair alone, the model
gives each pair a score, and of one question's sentences the one with the highest score is the answer.

"None of them" takes part with the score 0. That fixes the level of the scores, so that a pair that is alone with its
question can be judged too, by the sign of its score; in the official files there is hardly one such pair, in parts of
them there are many.

Shapes: N pairs of a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.glue.reader import GlueRow


@dataclass(frozen=True, slots=True)
class Group:
    """A question of the training set and the sentences that compete."""

    question: str
    sentences: tuple[str, ...]
    answer: int  # which one is right; len(sentences) where none is


def training_groups(rows: Sequence[GlueRow], *, seed: int) -> list[Group]:
    """Rows of the training set -> groups, in the order in which the questions appear.

    A sentence that answers its question competes with the question's other sentences; where there are none, with one
    that is drawn from those of other questions. A pure function of rows and seed.
    """
    sentences = [row.sentences[1] for row in rows]
    groups = []
    for number, (question, members) in enumerate(_by_question(rows).items()):
        right = [sentences[member] for member in members if rows[member].label == 1]
        wrong = tuple(sentences[member] for member in members if rows[member].label == 0)
        if not right:
            groups.append(Group(question, wrong, len(wrong)))
            continue
        rivals = wrong or _drawn(sentences, set(members), seed=(seed, number))
        groups += [Group(question, (sentence, *rivals), 0) for sentence in right]
    return groups


def question_numbers(rows: Sequence[GlueRow]) -> NDArray[np.int64]:
    """The same number for pairs of the same question (N,)."""
    numbers = np.empty(len(rows), dtype=np.int64)
    for number, members in enumerate(_by_question(rows).values()):
        numbers[members] = number
    return numbers


def decide(scores: NDArray[np.floating], questions: NDArray[np.integer]) -> NDArray[np.int64]:
    """Scores (N,) of pairs and the numbers of their questions (N,) -> 1 where the sentence is the answer, 0 else (N,).

    Of several sentences of a question the best is the answer, the first of them where scores are equal; a sentence
    that is alone is the answer if its score is above 0.
    """
    order = np.lexsort((-scores, questions))  # stable: question by question, the best first
    is_best = np.ones(len(order), dtype=bool)
    is_best[1:] = questions[order[1:]] != questions[order[:-1]]
    predictions = np.empty(len(order), dtype=np.int64)
    predictions[order] = is_best
    _, inverse, counts = np.unique(questions, return_inverse=True, return_counts=True)
    is_alone = counts[inverse] == 1
    predictions[is_alone] = scores[is_alone] > 0
    return predictions


def _by_question(rows: Sequence[GlueRow]) -> dict[str, list[int]]:
    """Question -> indices of its rows."""
    members: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault(row.sentences[0], []).append(index)
    return members


def _drawn(sentences: Sequence[str], own: set[int], *, seed: tuple[int, int]) -> tuple[str, ...]:
    """A sentence of another question, or none where there is no other."""
    if len(own) == len(sentences):
        return ()
    rng = np.random.default_rng(seed)
    index = int(rng.integers(len(sentences)))
    while index in own:
        index = int(rng.integers(len(sentences)))
    return (sentences[index],)
