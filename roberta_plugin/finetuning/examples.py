"""Rows -> examples, and what is odd about them."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from roberta_plugin.tables import check_text, short, where

logger = logging.getLogger(__name__)

_EXACT = 2.0**53  # up to which floating point numbers have all whole numbers


class Example(NamedTuple):
    """A row that was read and checked."""

    path: Path
    line: int
    id: Any
    """Of tables of your own, a text; of official files, as their files of predictions name the row."""
    texts: tuple[str, ...]
    """The text, or the pair; with multiple choice the context and, if there is one, the question."""
    target: Any = None
    """What the kind is to predict, as it reads it: a label, labels, a number; None: not known."""
    choices: tuple[str, ...] = ()
    """The options of a multiple choice."""
    group: str = ""
    """What is the same in rows that must not be on both sides of a cut; empty: the text decides."""
    question: Hashable = None
    """What is the same in rows that are answered together; None: each is alone."""
    columns: Mapping[str, int] = MappingProxyType({})
    """Further columns of it in the prepared folder."""
    record: Mapping[str, Any] = MappingProxyType({})
    """Further fields of its record there."""

    @property
    def where(self) -> str:
        """For messages."""
        return where(self.path, self.line)


def label_of(value: Any, column: str, place: str) -> str:
    """A label as text: the numbers 1 and 1.0 and the text "1" are the same label, true is "true"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, str) and value.strip():
        return check_text(value, f"the column {column!r}", place).strip()
    if is_missing(value):
        raise ValueError(f"{place}: the label in the column {column!r} is empty. Fill it in, or leave the row out.")
    raise ValueError(f"{place}: the column {column!r} must hold a label, found {short(value)}.")


def is_missing(value: Any) -> bool:
    """Whether a field holds nothing: empty text, null, or not a number."""
    return value is None or (isinstance(value, str) and not value.strip()) or (value != value)


def warn_of_duplicates(examples: Sequence[Example]) -> None:
    """Warn of texts that occur several times, with the same target or with another one."""
    seen: dict[Any, Example] = {}
    same: list[tuple[Example, Example]] = []
    other: list[tuple[Example, Example]] = []
    for example in examples:
        earlier = seen.setdefault((example.texts, example.choices), example)
        if earlier is not example:
            (same if earlier.target == example.target else other).append((earlier, example))
    if same:
        first, second = same[0]
        logger.warning(
            f"{second.where}: the row repeats line {first.line}; {len(same):,} rows repeat an earlier one and count "
            "twice. Remove them if that is not meant."
        )
    if other:
        first, second = other[0]
        logger.warning(
            f"{second.where}: the text is that of line {first.line}, with {short(second.target)} instead of "
            f"{short(first.target)}; {len(other):,} rows contradict an earlier one. Correct them if you can."
        )


def check_ids(examples: Sequence[Example], column: str) -> None:
    """Check that no two rows of a table have the same id."""
    seen: dict[str, Example] = {}
    for example in examples:
        if seen.setdefault(example.id, example) is not example:
            raise ValueError(
                f"{example.where}: the id {example.id!r} in the column {column!r} is that of line "
                f"{seen[example.id].line}, too. Ids must be unique: correct one of the two, or leave --id-column out."
            )


def shared_sides(examples: Sequence[Example]) -> list[int]:
    """How many pairs share their first text with a pair that has another second text, and the reverse."""
    found = []
    for side in (0, 1):
        others: dict[str, set[str]] = {}
        for example in examples:
            others.setdefault(example.texts[side], set()).add(example.texts[1 - side])
        found.append(sum(len(others[example.texts[side]]) > 1 for example in examples))
    return found


def warn_of_overlap(train: Iterable[Example], others: Sequence[Example], *, split: str) -> None:
    """Warn of texts that are both in the training set and in another split."""
    known = {(example.texts, example.choices): example for example in train}
    pairs = [(known[key], each) for each in others if (key := (each.texts, each.choices)) in known]
    if pairs:
        first, second = pairs[0]
        logger.warning(
            f"{second.where}: the text is also in {first.where}; {len(pairs):,} of {len(others):,} texts of the split "
            f"{split} are in the training set too, so its metrics are too good."
        )
