"""Raw outputs for all windows -> the best answers to each question and the probability that it has none; their files.

For each window the model gives the probability that it holds the answer, and where the answer then starts and ends. The
probability of a span is the product of the three. The spans of all windows of a question compete with each other. The
probability of no answer is that of the window which is most likely to hold one: 1 - its probability of holding it.

Shapes: W windows of the split, P tokens of the passage in a window, M most tokens of an answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.benchmarks import RawOutputs
from roberta_plugin.finetuning.squad.questions import Questions

MAX_ANSWER_LENGTH = 30
N_BEST = 20


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
    """The best answers of all questions of a split, by the mean of the members' probabilities.

    Args:
        questions: of the split.
        members: raw outputs of one model or several.
        n_best: number of candidates per question.
        max_answer_length: most tokens of an answer.
    """
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
    be no such span.

    Args:
        questions: of the split.
        window: which window.
        starts: each member's logits of the positions to start the answer.
        ends: each member's logits of the positions to end it.
        number: most spans to return.
        max_answer_length: most tokens of an answer.
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
    starts: NDArray[np.float64], ends: NDArray[np.float64], own: slice, *, number: int, length: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The spans with the greatest sums of a start score (P,) and an end score (P,).

    Example: starts [0, 3, 1], ends [2, 0, 2], one span of at most 2 tokens -> the span from token 1 to 2, score 5.

    Args:
        starts: score of each token to start the answer.
        ends: score of each token to end it.
        own: where an answer may start.
        number: most spans to return.
        length: most tokens of a span.

    Returns:
        Scores, first and last tokens; the best first; ties go to the span that starts, then ends, earlier.
    """
    padded = np.concatenate([ends, np.full(length - 1, -np.inf)])
    following = np.lib.stride_tricks.sliding_window_view(padded, length)  # (P, M): ends from each start on
    sums = (starts[own, None] + following[own]).ravel()
    count = min(number, sums.size)
    chosen = np.sort(np.argpartition(-sums, count - 1)[:count]) if count else np.empty(0, dtype=np.int64)
    chosen = chosen[np.argsort(-sums[chosen], kind="stable")]
    chosen = chosen[np.isfinite(sums[chosen])]
    begin, extra = np.divmod(chosen, length)
    begin = begin + own.start
    return sums[chosen], begin, begin + extra


def _mean_log_probabilities(members: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Logits (P,) of each member -> logarithm of the mean of their probabilities (P,)."""
    mean: NDArray[np.float64] = scipy.special.logsumexp(
        scipy.special.log_softmax(np.array(members, dtype=np.float64), axis=1), axis=0
    ) - np.log(len(members))
    return mean


def _different(questions: Questions, found: Sequence[tuple[Any, ...]], number: int) -> list[Candidate]:
    """The first `number` candidates with distinct texts."""
    candidates: dict[str, Candidate] = {}
    for value, window, start, end in found:
        text = questions.text(window, start, end)
        if text not in candidates:
            candidates[text] = Candidate(text, float(value), *questions.characters(window, start, end))
            if len(candidates) == number:
                break
    return list(candidates.values())


def write_predictions(
    folder: Path,
    task: str,
    questions: Questions,
    decoded: Sequence[Decoded],
    predictions: Mapping[str, str],
    null: Mapping[str, float],
) -> None:
    """Write the files that `benchmark.score` names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "predictions.json", predictions)
    n_best = {id_: _candidates(task, found) for id_, found in zip(questions.ids, decoded, strict=True)}
    _write_json(folder / "nbest_predictions.json", n_best)
    if task == "squad2":
        _write_json(folder / "null_odds.json", null)


def _candidates(task: str, found: Decoded) -> list[dict[str, Any]]:
    """Texts with their probabilities and characters of the passage; with SQuAD 2.0, no answer is among them."""
    entries: list[dict[str, Any]] = [
        {"text": text, "probability": math.exp(value), "start": start, "end": stop}
        for text, value, start, stop in found.candidates
    ]
    if task == "squad2":
        entries.append({"text": "", "probability": found.null_probability})
    return sorted(entries, key=lambda entry: -entry["probability"])


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
