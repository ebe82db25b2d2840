"""The official metrics of SQuAD: means of exact match and F1, and the threshold for "no answer".

Definitions and the order of summation are as in the two official scripts, so that numbers agree to the last digit. Each
question of SQuAD 1.1 has an answer; in 2.0, some questions have none.
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.finetuning.kinds.answer_scores import AnswerScore, answer_score
from roberta_plugin.finetuning.kinds.score_names import BEST


def best_null_threshold(
    scores: Sequence[float], *, null: Sequence[float], has_answer: Sequence[bool], is_given: Sequence[bool]
) -> tuple[float, float]:
    """The threshold with the best mean score, if a question whose `null` is above it counts as not answered.

    `scores` are the scores of the answers, if the questions are answered.

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


def squad_metrics(
    task: str,
    right: Sequence[Sequence[str] | None],
    predictions: Sequence[str],
    null: Sequence[float] | None = None,
    *,
    by_characters: Sequence[bool] | None = None,
) -> dict[str, float]:
    """The metrics that the official script prints, from 0 to 100, without its totals.

    With squad2, `null` has the probability of no answer to each question. It does not change the predictions, but the
    best thresholds are found. `by_characters` is True for each question whose characters are compared, not its words;
    None: words are compared.

    Returns:
        exact_match and f1; with squad2 also HasAns_exact_match, HasAns_f1, NoAns_exact_match, NoAns_f1 if there are
        such questions and, with `null`, best_exact_match, best_exact_match_thresh, best_f1, best_f1_thresh. The script
        of version 2.0 says exact for exact_match.
    """
    questions = zip(predictions, right, by_characters or [False] * len(right), strict=True)
    may_be_empty = task != "squad1"
    scores = [
        answer_score(text, answers or (), may_be_empty=may_be_empty, by_characters=each)
        for text, answers, each in questions
    ]
    result = _means("", scores)
    if not may_be_empty:
        return result
    has_answer = [bool(answers) for answers in right]
    for name, wanted in (("HasAns_", True), ("NoAns_", False)):
        part = [score for score, has in zip(scores, has_answer, strict=True) if has == wanted]
        result |= _means(name, part) if part else {}
    if null is not None:
        is_given = [bool(text) for text in predictions]
        for name, values in zip(AnswerScore._fields, zip(*scores, strict=True), strict=True):
            result[BEST + name], result[f"{BEST}{name}_thresh"] = best_null_threshold(
                values, null=null, has_answer=has_answer, is_given=is_given
            )
    return result


def _means(prefix: str, scores: Sequence[AnswerScore]) -> dict[str, float]:
    columns = zip(AnswerScore._fields, zip(*scores, strict=True), strict=True)
    return {f"{prefix}{name}": 100.0 * sum(values) / len(values) for name, values in columns}
