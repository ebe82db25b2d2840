"""Rows -> examples, and warnings of odd ones; the order and the weights of the labels of a table.

Shapes: C labels.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from roberta_plugin.finetuning.records import number_in
from roberta_plugin.spelling import how_they_differ, look_alikes, meant
from roberta_plugin.tables import Row, check_text, named_format, read_table, short, text_lines, where

logger = logging.getLogger(__name__)

_EXACT = 2.0**53  # up to which floating point numbers have all whole numbers


class Example(NamedTuple):
    """A row that was read and checked."""

    path: Path
    line: int
    id: Any
    """A text in tables of your own; in official files, whatever names the row in their files of predictions."""
    texts: tuple[str, ...]
    """The text, or the pair; with multiple choice the context and, if there is one, the question."""
    target: Any = None
    """The right answer, in the form the kind reads: a label, labels, a number; None: not known."""
    choices: tuple[str, ...] = ()
    """The options of a multiple choice."""
    group: str = ""
    """The same for rows that must not be on both sides of a cut; empty: rows with the same text stay together."""
    question: Hashable = None
    """The same for rows that are answered together; None: the row is answered alone."""
    columns: Mapping[str, int] = MappingProxyType({})
    """The example's further columns in the prepared folder."""
    record: Mapping[str, Any] = MappingProxyType({})
    """Further fields of the example's record in the prepared folder."""
    lines: tuple[int, ...] = ()
    """The line of each word, if the words are not on consecutive lines."""

    @property
    def where(self) -> str:
        """The file and the line, for messages."""
        return where(self.path, self.line)

    def place_of_word(self, word: int) -> str:
        """The file and the line of one of its words; in tables of lists, the row and the word's number."""
        if named_format(self.path) in ("csv", "jsonl", "parquet", "arrow"):
            return f"{self.where}, word {word + 1}"
        return where(self.path, self.lines[word] if self.lines else self.line + word)


def label_of(value: object, column: str, place: str) -> str:
    """A label as text: the numbers 1 and 1.0 and the text "1" are the same label, true is "true"."""
    # Tables of lists and Parquet have typed cells; CSV has only texts, and pandas writes whole numbers as 1.0 in a
    # column with a missing one. A bool is an int in Python, so it comes first.
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


def is_missing(value: object) -> bool:
    """True if a field holds nothing: an empty text, null, or NaN."""
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
            f"{second.where}: the row repeats {_in_its_file(first)}; {len(same):,} "
            f"{'row repeats an earlier one and counts' if len(same) == 1 else 'rows repeat an earlier one and count'} "
            "twice. Remove repeated rows unless they are intended."
        )
    if other:
        first, second = other[0]
        logger.warning(
            f"{second.where}: the text is the same as in {_in_its_file(first)}, with {short(second.target)} instead "
            f"of {short(first.target)}; {len(other):,} "
            f"{'row contradicts' if len(other) == 1 else 'rows contradict'} an earlier one. Correct the labels if you "
            "can."
        )


def _in_its_file(example: Example) -> str:
    """The place without its file: `line 7`, or `row 7` of a table whose rows are not lines."""
    return example.where.removeprefix(f"{example.path}, ")


def shared_sides(examples: Sequence[Example]) -> list[int]:
    """Count pairs that share their first text with a pair of another second text, and the reverse."""
    counts = []
    for side in (0, 1):
        others: dict[str, set[str]] = {}
        for example in examples:
            others.setdefault(example.texts[side], set()).add(example.texts[1 - side])
        counts.append(sum(len(others[example.texts[side]]) > 1 for example in examples))
    return counts


def warn_of_overlap(train: Iterable[Example], others: Sequence[Example], *, split: str) -> None:
    """Warn of texts that are both in the training set and in another split."""
    in_training = {(example.texts, example.choices): example for example in train}
    pairs = [(in_training[key], each) for each in others if (key := (each.texts, each.choices)) in in_training]
    if pairs:
        first, second = pairs[0]
        logger.warning(
            f"{second.where}: the text is also in {first.where}; {len(pairs):,} of {len(others):,} texts of the split "
            f"{split} are in the training set too, so its metrics are too good."
        )


_NUMBER = re.compile(r"-?\d{1,15}")
_MOST_LABELS = 1000  # more are taken for texts or numbers
_FEW_ROWS = 20
_MISSING = ("nan", "<na>", "null", "n/a", "#n/a")  # what programs write for a missing value


def order_labels(
    pairs: Iterable[tuple[str, Example]],
    listed: Sequence[str] | None,
    *,
    path: object,
    least: int = 2,
    source: str = "",
) -> list[str]:
    """The labels in the order of their numbers, and warnings of odd ones.

    Args:
        pairs: each label of a training table, and its example.
        listed: the labels of --labels, in their order; None: the labels of the table, sorted, as numbers if all are
            whole.
        path: the table, for messages.
        least: how many labels there must be.
        source: where the listed labels come from, if not from --labels.

    Raises:
        ValueError: if a label is not among `listed`, if there are fewer than `least`, or if there are so many that the
            column cannot be one of labels.

    Example: labels 10, 9 and 9 -> ["9", "10"]; with "x" among them -> ["10", "9", "x"].
    """
    seen: dict[str, Example] = {}
    num_labels = 0
    for label, example in pairs:
        seen.setdefault(label, example)
        num_labels += 1
    if listed is not None:
        _check_listed(seen, listed, path=path, source=source or "--labels")
        labels = list(listed)
    else:
        # Sorted as numbers, 10 comes after 9, so that label n is class n where a table counts from 0.
        are_numbers = all(_NUMBER.fullmatch(label) for label in seen)
        labels = sorted(seen, key=int) if are_numbers else sorted(seen)
    if len(labels) < least:
        raise ValueError(
            f"{path}: all rows have the label {labels[0]!r}, so there is nothing to learn. Is --label-column right?"
            if labels
            else f"{path}: no row has a label. Is --label-column right?"
        )
    _warn_of_missing(seen)
    warn_of_look_alikes({label: example.where for label, example in seen.items()}, what="label")
    if listed is None and (len(labels) > _MOST_LABELS or (num_labels >= _FEW_ROWS and len(labels) > num_labels / 2)):
        raise ValueError(
            f"{path}: the label column has {len(labels):,} different values in {num_labels:,} rows, such as "
            f"{labels[0][:40]!r} and {labels[-1][:40]!r}, which do not look like labels. Name another --label-column, "
            "give --kind regression if they are numbers, or list them by --labels if they are labels."
        )
    return labels


def _check_listed(seen: Mapping[str, Example], listed: Sequence[str], *, path: object, source: str) -> None:
    """Refuse labels that are not listed, and warn of listed ones that no row has."""
    for label, example in seen.items():
        if label not in listed:
            raise ValueError(
                f"{example.where}: the label {label!r} is none of {source} {' '.join(listed)}."
                f"{_question(label, listed)} Add it there, or correct the row"
                + ("; --label-names names labels that are numbers." if label.isdecimal() else ".")
            )
    never = [label for label in listed if label not in seen]
    if never:
        of_all = f"({len(never)} of {len(listed)} are missing)"
        logger.warning(f"{path}: no row has the label {never[0]!r} of {source} {of_all}.")


def _warn_of_missing(seen: Mapping[str, Example]) -> None:
    """Warn of labels such as "nan" or "-"; a "-" beside "+" is a real label."""
    for label, example in seen.items():
        if label.casefold() in _MISSING or (label in ("-", "?") and "+" not in seen):
            logger.warning(
                f"{example.where}: the label is the text {label!r}, which counts as a label of its own. If it stands "
                "for a missing label, as in files of pandas or SNLI, leave such rows out."
            )


def with_positive(labels: Sequence[str], positive: str | None) -> list[str]:
    """Two labels; the second is the positive one, whose F1, average precision and threshold are reported.

    Raises:
        ValueError: if there is no such label, or if there are more than two.
    """
    if positive is None:
        return list(labels)
    if positive not in labels or len(labels) != 2:
        shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        why = "there is no such label" if positive not in labels else f"it goes with two labels, not with {len(labels)}"
        raise ValueError(f"--positive-label {positive}: {why}; there are {shown}.")
    return [label for label in labels if label != positive] + [positive]


def number_of(label: str, labels: Sequence[str], example: Example) -> int:
    """The number of a label."""
    try:
        return labels.index(label)
    except ValueError:
        shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        are_numbers = not label.isdecimal() and all(each.isdecimal() for each in labels)
        remedy = "name the numbers of the training table by --label-names" if are_numbers else "name all by --labels"
        raise ValueError(
            f"{example.where}: no row of the training table has the label {label!r}; it has {shown}."
            f"{_question(label, labels)} Correct the row, or {remedy}."
        ) from None


def _question(label: str, labels: Iterable[str]) -> str:
    """A question that names a label that looks like this one; empty if there is none."""
    other = meant(label, labels)
    return "" if other is None else f" Is {other!r} meant{how_they_differ(label, other)}?"


def warn_of_look_alikes(places: Mapping[str, str], *, what: str) -> None:
    """Warn of labels, or other names, that differ only in spelling; each comes with its place."""
    for one, other in look_alikes(places):
        logger.warning(
            f"{places[other]}: the {what} {other!r} differs from {one!r} ({places[one]}) only in spelling"
            f"{how_they_differ(one, other)}, and is treated as a separate {what}. Spell them alike if they are meant "
            "to be the same."
        )


def weights_of(values: Sequence[str], *, delimiter: str | None = None) -> str | dict[str, float]:
    """The value of --class-weights: none, balanced, or a weight by label, from LABEL=WEIGHT or a table.

    Raises:
        ValueError: naming the text, or the file and the line, if it is not a weight.

    Example: ["rare=5", "common=1"] -> {"rare": 5.0, "common": 1.0}.
    """
    if len(values) == 1 and values[0] in ("none", "balanced"):
        return values[0]
    pairs: list[tuple[str, Any, str]] = []
    for value in values:
        label, equals, number = value.rpartition("=")
        if equals:
            pairs.append((label, number, f"--class-weights {value}"))
        elif not Path(value).exists():
            raise ValueError(
                f"--class-weights {value}: there is no such file. Give none, balanced, LABEL=WEIGHT for each label, or "
                "a table with the columns label and weight."
            )
        else:
            for row in _weights_in(Path(value), delimiter):
                label = label_of(row.value("label", option="--class-weights"), "label", row.where)
                pairs.append((label, row.value("weight", option="--class-weights"), row.where))
    weights: dict[str, float] = {}
    for label, text, place in pairs:
        weight = number_in(text)
        if not weight >= 0:
            raise ValueError(f"{place}: the weight of the label {label!r} must be a number from 0 on, got {text!r}.")
        if label in weights:
            raise ValueError(f"{place}: the label {label!r} has two weights. Leave one of them out.")
        weights[label] = weight
    return weights


def _weights_in(path: Path, delimiter: str | None) -> Iterator[Row]:
    """The rows of a table of weights; --delimiter, which the other tables have, counts only if it occurs here."""
    header = next((line for line in text_lines(path) if line.strip()), "") if named_format(path) == "csv" else ""
    is_given = delimiter is not None and delimiter in header
    return read_table(path, delimiter=delimiter if is_given else None)


def given_weights(labels: Sequence[str], by_label: Mapping[str, float]) -> list[float]:
    """Weight of each label (C,): the one in `by_label`, or 1.

    Raises:
        ValueError: if `by_label` has a name that is not a label, or all weights are 0.
    """
    for label in by_label:
        if label not in labels:
            shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
            raise ValueError(
                f"--class-weights {label}={by_label[label]:g}: there is no such label; there are {shown}."
                f"{_question(label, labels)}"
            )
    weights = [float(by_label.get(label, 1.0)) for label in labels]
    if not any(weights):
        raise ValueError("--class-weights gives every label the weight 0, so there is nothing to learn. Raise one.")
    return weights


def balanced_weights(labels: Sequence[str], occurrences: Counter[str]) -> list[float]:
    """Weight of each label (C,): all occurrences / (C * occurrences of this label), 1 on average over all of them.

    scikit-learn's class_weight="balanced" has the same formula. A label that does not occur gets 1.

    Example: 3 times a, once b -> [0.667, 2.0].
    """
    total = sum(occurrences.values())
    present = sum(1 for label in labels if occurrences[label])
    return [total / (present * occurrences[label]) if occurrences[label] else 1.0 for label in labels]


def positive_weights(labels: Sequence[str], occurrences: Counter[str], num_examples: int) -> list[float]:
    """Weight of each label's presence relative to its absence (C,), as torch's pos_weight: absences / presences.

    A label that does not occur, or always does, gets 1.
    """
    return [
        (num_examples - occurrences[label]) / occurrences[label] if 0 < occurrences[label] < num_examples else 1.0
        for label in labels
    ]
