"""Exact match and F1 of an answer that is a text, by the official scripts of SQuAD, evaluate-v1.1.py and -v2.0.py.

The scripts differ if a text is empty after normalization. Version 1.1 gives two such texts an F1 of 0. Version 2.0,
whose answers may be empty, gives 1 and ignores such right answers. Characters may be compared instead of words
(`scripts`).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from roberta_plugin.finetuning.kinds.scripts import segments, segments_of_match

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerScore(NamedTuple):
    """Exact match and F1 of one question, 0 to 1."""

    exact_match: float
    f1: float


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, one space between words.

    Example: "The  U.S., an  Ally" -> "us ally".
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def answer_score(
    prediction: str, right: Sequence[str], *, may_be_empty: bool = False, by_characters: bool = False
) -> AnswerScore:
    """Scores of a prediction against the right answer that fits best.

    If the answer `may_be_empty`, "" is right for questions without right answers. Words are compared, or characters
    with `by_characters` (`scripts`).
    """

    def words(text: str) -> list[str]:
        return segments(text) if by_characters else normalize(text).split()

    if may_be_empty:
        right = [text for text in right if words(text)] or [""]
    assert right, "each question has an answer"
    to_match = segments_of_match if by_characters else words
    given, whole = words(prediction), to_match(prediction)
    exact = max(float(whole == to_match(text)) for text in right)
    both_empty = float(may_be_empty)
    return AnswerScore(exact, max(_answer_f1(given, words(text), both_empty=both_empty) for text in right))


def _answer_f1(predicted: Sequence[str], right: Sequence[str], *, both_empty: float) -> float:
    if not predicted or not right:
        return both_empty if predicted == right else 0.0
    num_same = sum((Counter(predicted) & Counter(right)).values())
    if num_same == 0:
        return 0.0
    precision, recall = 1.0 * num_same / len(predicted), 1.0 * num_same / len(right)
    return (2 * precision * recall) / (precision + recall)
