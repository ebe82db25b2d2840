"""Labels of a training table: which there are, in which order, and how much each counts in the loss.

Shapes: C labels.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.cells import number_in
from roberta_plugin.finetuning.examples import Example, label_of
from roberta_plugin.tables import read_table

logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"-?\d{1,15}")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,15}(\.[0-9]{0,15})?")
_MOST_LABELS = 1000  # more are taken for texts or numbers
_FEW_ROWS = 20
_BOOLEANS = {"true": "1", "false": "0"}
_MISSING = ("nan", "<na>", "null", "n/a", "#n/a")  # what programs write for a missing value


def found_labels(
    pairs: Iterable[tuple[str, Example]], given: Sequence[str] | None, *, path: object, least: int = 2
) -> list[str]:
    """The labels in the order of their numbers.

    Args:
        pairs: each label of a training table, and its example.
        given: the labels as the user has ordered them; None: those found, sorted: as numbers if all are whole.
        path: the table, for messages.
        least: how many labels there must be.

    Raises:
        ValueError: if a label is not among `given`, if there are fewer than `least`, or if there are so many that the
            column cannot be one of labels.

    Example: labels 10, 9 and 9 -> ["9", "10"]; with "x" among them -> ["10", "9", "x"].
    """
    seen: dict[str, Example] = {}
    num_labels = 0
    for label, example in pairs:
        seen.setdefault(label, example)
        num_labels += 1
    if given is not None:
        for label, example in seen.items():
            if label not in given:
                raise ValueError(
                    f"{example.where}: the label {label!r} is none of --labels {' '.join(given)}. Add it there, or "
                    "correct the row."
                )
        never = [label for label in given if label not in seen]
        if never:
            logger.warning(
                f"{path}: no row has the label {never[0]!r} of --labels ({len(never)} of {len(given)} lack)."
            )
        found = list(given)
    else:
        are_numbers = all(_NUMBER.fullmatch(label) for label in seen)
        found = sorted(seen, key=int) if are_numbers else sorted(seen)
    if len(found) < least:
        raise ValueError(
            f"{path}: there is no other label than {found[0]!r}, so there is nothing to learn. Is --label-column right?"
            if found
            else f"{path}: no row has a label. Is --label-column right?"
        )
    for label in seen:
        if label.casefold() in _MISSING:
            logger.warning(
                f"{seen[label].where}: the label is the text {label!r}, which counts as a label of its own. If it "
                "stands for a missing one, as pandas writes it, leave such rows out."
            )
    for one, other in look_alikes(seen):
        logger.warning(
            f"{seen[other].where}: the label {other!r} differs from {one!r} ({seen[one].where}) in its spelling only, "
            "and counts as another one. Spell them alike if they are meant to be the same."
        )
    if given is None and (len(found) > _MOST_LABELS or (num_labels >= _FEW_ROWS and len(found) > num_labels / 2)):
        raise ValueError(
            f"{path}: the label column has {len(found):,} different values in {num_labels:,} rows, such as "
            f"{found[0][:40]!r} and {found[-1][:40]!r}, which are no labels. Name another --label-column, give --kind "
            "regression if they are numbers, or list them by --labels if they are labels all the same."
        )
    return found


def with_positive(labels: Sequence[str], positive: str | None) -> list[str]:
    """Two labels, of which the second is the positive one: that of F1, average precision and thresholds.

    Raises:
        ValueError: if there is no such label, or if there are more than two.
    """
    if positive is None:
        return list(labels)
    if positive not in labels or len(labels) != 2:
        named = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        why = "there is no such label" if positive not in labels else f"it goes with two labels, not with {len(labels)}"
        raise ValueError(f"--positive-label {positive}: {why}; there are {named}.")
    return [label for label in labels if label != positive] + [positive]


def number_of(label: str, labels: Sequence[str], example: Example) -> int:
    """The number of a label."""
    try:
        return labels.index(label)
    except ValueError:
        shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        meant = next((known for known in labels if _loosely(known) == _loosely(label)), None)
        raise ValueError(
            f"{example.where}: no row of the training table has the label {label!r}; it has {shown}. "
            + (f"Is {meant!r} meant? " if meant is not None else "")
            + "Correct the row, or name all labels by --labels."
        ) from None


def look_alikes(labels: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of labels that are the same number (true is 1), or the same text but for upper case, white space and
    Unicode's ways to write an accent.

    Example: "1", "Pos", "1.0", "pos" -> [("1", "1.0"), ("Pos", "pos")].
    """
    first: dict[str, str] = {}
    return [(first[key], label) for label in labels if first.setdefault(key := _loosely(label), label) != label]


def _loosely(label: str) -> str:
    """What labels have in common that differ in spelling only."""
    number = _BOOLEANS.get(label.strip().casefold(), label.strip())
    if _DECIMAL.fullmatch(number):
        return str(float(number))
    return unicodedata.normalize("NFC", " ".join(label.split()).casefold())


def weights_of(values: Sequence[str]) -> str | dict[str, float]:
    """What --class-weights says: none, balanced, or a weight by label, from LABEL=WEIGHT or a table.

    Raises:
        ValueError: naming the text, or the file and the line, that is no weight.

    Example: ["rare=5", "common=1"] -> {"rare": 5.0, "common": 1.0}.
    """
    if len(values) == 1 and values[0] in ("none", "balanced"):
        return values[0]
    pairs: list[tuple[str, Any, str]] = []
    for value in values:
        label, equals, number = value.rpartition("=")
        if equals:
            pairs.append((label, number, f"--class-weights {value}"))
        elif not Path(value).is_file():
            raise ValueError(
                f"--class-weights {value}: there is no such file. Give none, balanced, LABEL=WEIGHT for each label, or "
                "a table with the columns label and weight."
            )
        else:
            for row in read_table(Path(value)):
                label = label_of(row.value("label", option="--class-weights"), "label", row.where)
                pairs.append((label, row.value("weight", option="--class-weights"), row.where))
    found: dict[str, float] = {}
    for label, text, where in pairs:
        weight = number_in(text)
        if not weight >= 0:
            raise ValueError(f"{where}: the weight of the label {label!r} must be a number from 0 on, got {text!r}.")
        if label in found:
            raise ValueError(f"{where}: the label {label!r} has two weights. Leave one of them out.")
        found[label] = weight
    return found


def given_weights(labels: Sequence[str], given: Mapping[str, float]) -> list[float]:
    """Weight of each label (C,): the given one, or 1.

    Raises:
        ValueError: if one is given for what is no label, or all are 0.
    """
    for label in given:
        if label not in labels:
            shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
            raise ValueError(f"--class-weights {label}={given[label]:g}: there is no such label; there are {shown}.")
    weights = [float(given.get(label, 1.0)) for label in labels]
    if not any(weights):
        raise ValueError("--class-weights gives every label the weight 0, so there is nothing to learn. Raise one.")
    return weights


def balanced_weights(labels: Sequence[str], occurrences: Counter[str]) -> list[float]:
    """Weight of each label (C,): number of labels / (C * number of this one), so that they are 1 on average.

    The formula is that of scikit-learn's class_weight="balanced". A label that does not occur gets 1.

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
