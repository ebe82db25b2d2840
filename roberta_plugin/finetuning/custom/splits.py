"""One table -> training and development set, by a hash of the text: equal texts never come on both sides.

The hash depends on the text alone, so a row stays on its side when rows are added, removed or sorted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from roberta_plugin.finetuning.custom.examples import Example


def position_of(texts: Sequence[str]) -> float:
    """A number from 0 to 1 (exclusive) for texts, uniformly distributed; runs of white space count as one space.

    Example: position_of(("A  text.",)) == position_of(("A text.",))
    """
    joined = "\x1f".join(" ".join(text.split()) for text in texts)
    digest = hashlib.blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def cut_share(examples: Sequence[Example], *, share: float, key: Callable[[Example], Sequence[str]]) -> list[bool]:
    """Whether each example belongs to the development set, which gets about `share` of the texts."""
    return [position_of(key(example)) < share for example in examples]


def cut_fold(
    examples: Sequence[Example], *, number: int, total: int, key: Callable[[Example], Sequence[str]]
) -> list[bool]:
    """Whether each example belongs to part `number` (from 1) of `total` parts of about the same size."""
    return [int(position_of(key(example)) * total) == number - 1 for example in examples]


def divided(
    examples: Sequence[Example], is_valid: Sequence[bool], *, remedy: str
) -> tuple[list[Example], list[Example]]:
    """Training and development set.

    Raises:
        ValueError: if one of them is empty.
    """
    train = [example for example, chosen in zip(examples, is_valid, strict=True) if not chosen]
    valid = [example for example, chosen in zip(examples, is_valid, strict=True) if chosen]
    if not train or not valid:
        raise ValueError(
            f"{examples[0].path}: of {len(examples):,} rows, none is left for the "
            f"{'training' if not train else 'development'} set. {remedy}"
        )
    return train, valid
