"""The right answers to a question, as data sets write them, and their places in the passage.

    "Ann", ["Ann", "Anna"]                         texts
    {"text": ["Ann"], "answer_start": [7]}         the hub's SQuAD; also with one text and one number
    [{"text": "Ann", "answer_start": 7}]           SQuAD's own; the number may be in a list of one
    null, "", [], {"text": [], "answer_start": []} no answer

Without `answer_start`, the first occurrence counts. If an answer is not at its `answer_start`, perhaps because bytes or
UTF-16 units were counted instead of characters, it is learned from its nearest occurrence and listed as doubtful.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from roberta_plugin.finetuning.examples import is_missing
from roberta_plugin.tables import check_text, short

NO_PLACE = -1
START, END = "answer_start", "answer_end"
_FORMS = f'a text, a list of texts, {{"text": [...], "{START}": [...]}} or [{{"text": ..., "{START}": ...}}]'


class SquadAnswer(NamedTuple):
    """A right answer, and its first character in the passage; `NO_PLACE` if the passage does not contain it."""

    text: str
    start: int
    answer_start: int | None = None
    """The place that the file names, if it names one."""
    answer_end: int | None = None
    """The end that the file names: the character after the last one, or the last one itself."""

    @property
    def is_doubtful(self) -> bool:
        """True if the text is at another place than the file says."""
        end = self.start + len(self.text)
        return self.answer_start not in (None, self.start) or self.answer_end not in (None, end, end - 1)


def locate(context: str, text: str, start: int) -> int:
    """The occurrence of `text` in `context` nearest to `start` (ties: the earlier one); `NO_PLACE` if there is none.

    Example: "a cat, a dog", "a", 5 -> 7.
    """
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    if before < 0 or after < 0:
        return max(before, after, NO_PLACE)
    return before if start - before <= after - start else after


def place_answer(context: str, text: str, start: int | None, end: int | None = None) -> SquadAnswer:
    """Place an answer at its `answer_start`, or else before its `answer_end`, or else at its nearest occurrence."""
    places = [start or 0]
    if start is None and end is not None:  # the end is the character after the last one, or the last one itself
        places = [end - len(text), end - len(text) + 1]
    for place in places:
        if place >= 0 and context.startswith(text, place):
            return SquadAnswer(text, place, start, end)
    return SquadAnswer(text, locate(context, text, places[0]), start, end)


def parse_answers(value: object, name: str, where: str) -> list[tuple[str, Any]]:
    """The texts of a cell or field with answers, and the `answer_start` of each; None if it has none.

    Raises:
        ValueError: beginning with `where`, and naming the column or field.
    """
    if is_missing(value):
        return []
    if isinstance(value, dict):
        return _parse_object(value, name, where)
    if not isinstance(value, str | list):
        raise ValueError(f"{where}: {name} must be {_FORMS}, found {short(value)}. Correct it.")
    found: list[tuple[str, Any]] = []
    for each in value if isinstance(value, list) else [value]:
        found += _parse_object(each, name, where) if isinstance(each, dict) else [(check_text(each, name, where), None)]
    return found


def _parse_object(value: dict[str, Any], name: str, where: str) -> list[tuple[str, Any]]:
    if "text" not in value:
        raise ValueError(f"{where}: {name} must be {_FORMS}, found {short(value)}. Correct it.")
    texts, starts = _as_list(value["text"]), _as_list(value.get(START))
    if value.get(START) is None:
        starts = [None] * len(texts)
    if len(starts) != len(texts):
        raise ValueError(f"{where}: {name} must have one whole number in {START} for each text.")
    return [(check_text(text, f"{name}, text", where), start) for text, start in zip(texts, starts, strict=True)]


def _as_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
