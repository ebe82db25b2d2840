"""QNLI as ranking: the sentences that are paired with one question compete to answer it (paper section 5.1).

QNLI was made by pairing each question of SQuAD with sentences of its paragraph: one that answers it and, in most cases,
one that does not. Instead of classifying each pair alone, the model gives each pair a logit, and the sentence with the
highest logit is the answer.

"None of them" takes part with the logit 0. This fixes the level of the logits, so that the only pair of a question can
be judged too, by the sign of its logit. The official files have almost no such pairs, parts of them have many.

Example: the pairs of a question have the logits 1.2 and 0.3 -> the first sentence is the answer (`decide`: [1, 0]).

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
    answer: int  # which one is right; len(sentences) if none is


def training_groups(rows: Sequence[GlueRow], *, seed: int) -> list[Group]:
    """Rows of the training set -> groups, in the order in which the questions appear.

    A sentence that answers its question competes with the question's other sentences or, if there are none, with a
    sentence drawn from those of other questions. A pure function of rows and seed.
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
    """The number of each row's question (N,), the same for pairs of the same question."""
    numbers = np.empty(len(rows), dtype=np.int64)
    for number, members in enumerate(_by_question(rows).values()):
        numbers[members] = number
    return numbers


def _by_question(rows: Sequence[GlueRow]) -> dict[str, list[int]]:
    """Question -> indices of its rows."""
    members: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault(row.sentences[0], []).append(index)
    return members


def _drawn(sentences: Sequence[str], own: set[int], *, seed: tuple[int, int]) -> tuple[str, ...]:
    """A sentence of another question, or none if there is no other question."""
    if len(own) == len(sentences):
        return ()
    rng = np.random.default_rng(seed)
    index = int(rng.integers(len(sentences)))
    while index in own:
        index = int(rng.integers(len(sentences)))
    return (sentences[index],)
