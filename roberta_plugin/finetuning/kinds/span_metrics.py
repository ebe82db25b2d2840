"""The official metrics of SQuAD: exact match and F1 of normalized texts, and the threshold for "no answer".

Definitions are those of the two official scripts, evaluate-v1.1.py and evaluate-v2.0.py, with the same order of
summation, so that numbers agree to the last digit. The scripts differ if a text is empty after normalization: version
1.1 gives two such texts an F1 of 0, version 2.0 gives 1 and ignores such right answers.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerScore(NamedTuple):
    """Exact match and F1 of one question, 0 to 1."""

    exact: float
    f1: float


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, one space between words.

    Example: "The  U.S., an  Ally" -> "us ally".
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score(task: str, given: str, right: Sequence[str]) -> AnswerScore:
    """Scores of the answer `given` against the right answer that fits best; without right answers, "" is right."""
    if task == "squad2":
        right = [text for text in right if normalize(text)] or [""]
    assert right, "a question of SQuAD 1.1 has an answer"
    words = normalize(given).split()
    alternatives = [normalize(text).split() for text in right]
    exact = max(float(words == alternative) for alternative in alternatives)
    return AnswerScore(
        exact, max(_f1(words, alternative, both_empty=float(task == "squad2")) for alternative in alternatives)
    )


def _f1(given: Sequence[str], right: Sequence[str], *, both_empty: float) -> float:
    if not given or not right:
        return both_empty if given == right else 0.0
    num_same = sum((Counter(given) & Counter(right)).values())
    if num_same == 0:
        return 0.0
    precision, recall = 1.0 * num_same / len(given), 1.0 * num_same / len(right)
    return (2 * precision * recall) / (precision + recall)


def best_threshold(
    scores: Sequence[float],
    *,
    null: Sequence[float],
    has_answer: Sequence[bool],
    is_given: Sequence[bool],
) -> tuple[float, float]:
    """The threshold with the best mean score, if a question whose `null` is above it counts as not answered.

    `scores` are those of the answers, if they are given.

    Returns:
        The best mean score (0 to 100) and the threshold. As in the official script, questions of equal `null` pass the
        threshold one after the other, in the order in which they come.
    """
    current = best = float(sum(1 for has in has_answer if not has))
    threshold = 0.0
    for index in sorted(range(len(null)), key=null.__getitem__):
        current += scores[index] if has_answer[index] else -1 if is_given[index] else 0
        if current > best:
            best, threshold = current, null[index]
    return 100.0 * best / len(scores), threshold


def evaluate(
    task: str, right: Sequence[Sequence[str] | None], given: Sequence[str], null: Sequence[float] | None = None
) -> dict[str, float]:
    """What the official script prints, 0 to 100, without its totals, of right and given answers to questions.

    With squad2, `null` has the probability of no answer to each question; it is not applied, but the best thresholds
    are determined.

    Returns:
        exact and f1; with squad2 also HasAns_exact, HasAns_f1, NoAns_exact, NoAns_f1 if there are such questions
        and, with `null`, best_exact, best_exact_thresh, best_f1, best_f1_thresh.
    """
    scores = [score(task, text, answers or ()) for text, answers in zip(given, right, strict=True)]
    result = _means("", scores)
    if task == "squad1":
        return result
    has_answer = [bool(answers) for answers in right]
    for name, wanted in (("HasAns_", True), ("NoAns_", False)):
        part = [found for found, has in zip(scores, has_answer, strict=True) if has == wanted]
        result |= _means(name, part) if part else {}
    if null is not None:
        is_given = [bool(text) for text in given]
        for name, values in zip(AnswerScore._fields, zip(*scores, strict=True), strict=True):
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best_threshold(
                values, null=null, has_answer=has_answer, is_given=is_given
            )
    return result


def _means(prefix: str, scores: Sequence[AnswerScore]) -> dict[str, float]:
    columns = zip(AnswerScore._fields, zip(*scores, strict=True), strict=True)
    return {f"{prefix}{name}": 100.0 * sum(values) / len(values) for name, values in columns}
