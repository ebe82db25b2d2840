"""The names of scores: one score has one name, in logs, results, reports, cards and `--select`.

    [QUALIFIER_]SCORE[_LABEL]

SCORE       such as accuracy, macro_f1, exact_match or spearman, of all examples; with two labels, f1, acc_and_f1 and
            average_precision are scores of the positive one
LABEL       a label, a type of entities or a level, if the score is of its examples only
QUALIFIER   tuned: with the labels or answers that a threshold decides, not the most probable ones; best: with the
            threshold that is best for this score and these examples; HasAns, NoAns: questions with and without an
            answer; lead, oracle: the first sentences, and the best ones

Example: f1, tuned_f1, f1_spam, tuned_f1_spam, accuracy_high, tuned_HasAns_f1

Thresholds and temperatures are listed among the scores, with the names in `Kind.decides_by` (`is_score`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from roberta_plugin.finetuning.kinds import deciding_numbers

BEST = "best_"
_TUNED = "tuned_"
_SCORES = ("median", "ensemble", "baseline", "tf_idf")  # in an evaluation
_LIMIT = "_thresh"  # the end of a threshold's name, such as best_f1_thresh
_FORMER = {"exact": "exact_match", "tuned_exact": "best_exact_match", "tuned_threshold": "threshold"}
_OF_POSITIVE = re.compile(r"((?:tuned_)?(?:f1|acc_and_f1|average_precision)) \((.*)\)", re.DOTALL)
_ROW = re.compile(r"(?P<before>\| [^|]* \| [^|]* \| )(?P<name>.*?)(?P<after> \| [^|]* \| [^|]* to [^|]* \|.*)")
_EXACT = re.compile(r"((?:tuned_|best_|HasAns_|NoAns_)?)exact((?:_thresh)?)")


def of_label(score: str, label: str) -> str:
    """The name of a score of one label.

    Example: of_label("f1", "spam") -> "f1_spam".
    """
    return f"{score}_{label}"


def tuned(name: str) -> str:
    """The name of the same score with the labels that a threshold decides."""
    return f"{_TUNED}{untuned(name)}"


def untuned(name: str) -> str:
    """The name of the same score with the most probable labels."""
    return name.removeprefix(_TUNED)


def find_score(score: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is this score, tuned or not; None: it is not there."""
    wanted = (score, tuned(score), untuned(score))
    there = set(names)
    return next((name for name in wanted if name in there), None)


def is_of_label(name: str) -> bool:
    """True for the precision, recall or F1 of one label or type of entities."""
    return untuned(name).startswith(("f1_", "precision_", "recall_"))


def is_score(name: str) -> bool:
    """True for a score, False for a threshold or a temperature."""
    return name not in deciding_numbers() and not (name.startswith(BEST) and name.endswith(_LIMIT))


def current_name(name: str) -> str:
    """The name of a score in logs, for one that logs of earlier versions call `name`."""
    return _FORMER.get(name, name)


def in_record(name: str, record: Mapping[str, float]) -> float | None:
    """The value of a score in a record of a log; the name or the record may be of an earlier version."""
    also = (current_name(name), *(former for former, current in _FORMER.items() if current == name))
    return next((record[each] for each in (name, *also) if each in record), None)


def current_evaluation(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an evaluation (`experiments/evaluation.py`), also of an earlier version, with current names.

    Example: "median": {"f1 (spam)": 90.0, "f1_spam": 90.0} -> "median": {"f1": 90.0}
    """

    def renamed(scores: Mapping[str, Any]) -> dict[str, Any]:
        return {_current_result(name, scores): value for name, value in dict(scores).items()}

    content, details = dict(content), dict(content.get("details", {}))
    selection, ensemble = content.get("selection"), content.get("ensemble", {})
    content["members"] = [{**each, "metrics": renamed(each["metrics"])} for each in content["members"]]
    content |= {name: renamed(content[name]) for name in _SCORES if name in content}
    details |= {name: renamed(details[name]) for name in ("intervals", "baseline") if name in details}
    if "not_measured" in details:
        details["not_measured"] = [_current_result(name, ensemble) for name in details["not_measured"]]
    if selection:
        content["selection"] = _current_result(str(selection), ensemble)
    return {**content, **({"details": details} if details else {})}


def current_table(table: str) -> str:
    """A table of results (results.md), also of an earlier version, with the names of now in its third column."""
    rows = [_ROW.fullmatch(line) for line in table.split("\n")]
    names = [row["name"] for row in rows if row]
    lines = [
        f"{row['before']}{_current_result(row['name'], names)}{row['after']}" if row else line
        for row, line in zip(rows, table.split("\n"), strict=True)
    ]
    return "\n".join(line for place, line in enumerate(lines) if not rows[place] or line not in lines[:place])


def _current_result(name: str, others: Collection[str]) -> str:
    """The current name of a score in an evaluation of an earlier version; `others` are the names beside it."""
    # The name alone does not tell the kind of task; the scores beside it do.
    has_answers = BEST + "f1" in others and _TUNED + "f1" not in others  # SQuAD 2.0, at the threshold
    if {"f1", "tuned_f1"} & {*others} and _EXACT.fullmatch(name):  # questions: HasAns_exact -> HasAns_exact_match
        name = _EXACT.sub(r"\1exact_match\2", name)
    for match in filter(None, map(_OF_POSITIVE.fullmatch, (name, *others))):
        if name in (match[0], of_label(match[1], match[2])):  # two labels: "f1 (spam)" and "f1_spam" -> f1
            return match[1]
    if has_answers and name.removeprefix("HasAns_").removeprefix("NoAns_") in ("f1", "exact_match"):
        return tuned(name)  # HasAns_f1 -> tuned_HasAns_f1
    if name == "f1a" and "exact_match" in others:  # MultiRC
        return "f1"
    is_of_several_labels = "tuned_micro_f1" in others  # f1_spam -> tuned_f1_spam
    return tuned(name) if name.startswith("f1_") and is_of_several_labels else name
