"""Examples of texts and pairs, as the readers of GLUE and SuperGLUE make them; and QNLI as ranking (paper section 5.1).

QNLI was made by pairing each question of SQuAD with sentences of its paragraph: one that answers it and, in most cases,
one that does not. Instead of classifying each pair alone, the model gives each pair a logit, and the sentence with the
highest logit is the answer.

"None of them" takes part with the logit 0. This fixes the level of the logits, so that the only pair of a question can
be judged too, by the sign of its logit. The official files have almost no such pairs, parts of them have many.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roberta_plugin.kinds.phrases import Schema


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text or a pair with its label."""

    id: Any
    """As prediction files name the row; of MultiRC, the numbers of paragraph, question and answer."""
    texts: tuple[str, ...]
    label: float | None
    """The id of the label, or the number; None if it is not public."""
    group: Hashable = None
    """Equal in examples that belong together, such as the pairs of a question."""


@dataclass(frozen=True, slots=True)
class SchemaExample:
    """A text with a gap, the phrase that the row is about, and its rivals."""

    id: Any
    """As prediction files name the row."""
    schema: Schema
    label: int | None
    """1 if the phrase is the right one; None if that is not public."""


@dataclass(frozen=True, slots=True)
class Group:
    """A question of the training set and the sentences that compete."""

    question: str
    sentences: tuple[str, ...]
    answer: int  # which one is right; len(sentences) if none is


def training_groups(rows: Sequence[TextExample], *, seed: int) -> list[Group]:
    """Rows of the training set -> groups, in the order in which the questions appear.

    A sentence that answers its question competes with the question's other sentences or, if there are none, with a
    sentence drawn from those of other questions. A pure function of rows and seed.
    """
    sentences = [row.texts[1] for row in rows]
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


def _by_question(rows: Sequence[TextExample]) -> dict[str, list[int]]:
    """Question -> indices of its rows."""
    members: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault(row.texts[0], []).append(index)
    return members


def _drawn(sentences: Sequence[str], excluded: set[int], *, seed: tuple[int, int]) -> tuple[str, ...]:
    """A sentence of another question, or none if there is no other question."""
    if len(excluded) == len(sentences):
        return ()
    rng = np.random.default_rng(seed)
    index = int(rng.integers(len(sentences)))
    while index in excluded:
        index = int(rng.integers(len(sentences)))
    return (sentences[index],)
