"""One table -> training and development set, by a hash of the text: equal texts never come on both sides.

Each label is cut by itself, so that the rare ones are on both sides, too. The hash depends on the text alone, so a row
stays on its side when the table is sorted; when rows are added or removed, only few rows of rare labels change it.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from roberta_plugin.finetuning.examples import Example

Key = Callable[[Example], Sequence[str]]
"""The texts of an example that must not be on both sides."""
Labels = Callable[[Example], Iterable[str]]
"""The labels of an example; none: all examples are cut together."""
_ROUNDING = 1e-9


def position_of(texts: Sequence[str]) -> float:
    """A number from 0 to 1 (exclusive) for texts, uniformly distributed; runs of white space count as one space.

    Example: position_of(("A  text.",)) == position_of(("A text.",))
    """
    joined = "\x1f".join(" ".join(text.split()) for text in texts)
    digest = hashlib.blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def cut_share(
    examples: Sequence[Example], *, share: float, key: Key, labels: Labels = lambda example: ()
) -> list[bool]:
    """Whether each example belongs to the development set, which gets about `share` of the texts of each label.

    A label with half a text to expect there, such as five texts of which a tenth is cut off, has one.
    """

    def chosen_of(label: str, positions: Sequence[float]) -> range:
        return range(min(_number_below(share, positions, step=share), len(positions) - 1))  # the training set keeps one

    return _cut(examples, key, labels, chosen_of)


def cut_fold(
    examples: Sequence[Example], *, number: int, total: int, key: Key, labels: Labels = lambda example: ()
) -> list[bool]:
    """Whether each example belongs to part `number` (from 1) of `total`, with its share of the texts of each label."""

    def chosen_of(label: str, positions: Sequence[float]) -> range:
        turn = int(position_of((label,)) * total)  # else part 1 of 5 would get a text of every label that has 3
        part = (number - 1 + turn) % total
        return range(*(_number_below(border / total, positions, step=1 / total) for border in (part, part + 1)))

    return _cut(examples, key, labels, chosen_of)


def _cut(
    examples: Sequence[Example], key: Key, labels: Labels, chosen_of: Callable[[str, Sequence[float]], range]
) -> list[bool]:
    """Whether each example is chosen: those texts of each label, in the order of their positions, that are in a range.

    A text with several labels, or a group of texts, counts for the rarest of its labels.
    """
    positions = [position_of(key(example)) for example in examples]
    frequency = Counter(label for example in examples for label in labels(example))
    rarest: dict[float, tuple[int, str]] = {}
    for position, example in zip(positions, examples, strict=True):
        own = [(frequency[label], str(label)) for label in labels(example)]
        rarest[position] = min([*own, *([rarest[position]] if position in rarest else [])], default=(0, ""))
    strata: dict[tuple[int, str], list[float]] = {}
    for position in sorted(rarest):
        strata.setdefault(rarest[position], []).append(position)
    chosen = {texts[place] for (_, label), texts in strata.items() for place in chosen_of(label, texts)}
    return [position in chosen for position in positions]


def _number_below(border: float, positions: Sequence[float], *, step: float) -> int:
    """How many of the sorted positions of a label's texts lie below a border between two parts, which have `step` each.

    They are counted as the hash has them, so that a text stays where it is when the table grows; but where a part would
    have over a fifth too many or too few for its share, the nearest number that is right is taken instead. Of a label
    with less than half a text per part, the hash decides alone.

    Example: of 10 texts, 2 lie below 0.2, 4 below 0.4, whatever their hashes are; of 1,000, from 160 to 240 below 0.2.
    """
    wanted, slack = border * len(positions), 0.2 * step * len(positions)
    least, most = math.ceil(wanted - slack - _ROUNDING), math.floor(wanted + slack + _ROUNDING)
    if least > most:
        least = most = math.floor(wanted + 0.5)
    number = bisect_left(positions, border)
    return number if step * len(positions) < 0.5 else min(max(number, least), most)


def divided(
    examples: Sequence[Example], is_valid: Sequence[bool], *, remedy: str
) -> tuple[list[Example], list[Example]]:
    """Training and development set."""
    train = [example for example, chosen in zip(examples, is_valid, strict=True) if not chosen]
    valid = [example for example, chosen in zip(examples, is_valid, strict=True) if chosen]
    if not train or not valid:
        raise ValueError(
            f"{examples[0].path}: of {len(examples):,} rows, none is left for the "
            f"{'training' if not train else 'development'} set. {remedy}"
        )
    return train, valid
