"""Where tokens stand in the text: the characters that each token covers.

Shapes: N tokens of a text, W characters of its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LAST_CONTROL = "\x1f"


class LocatedTokens(NamedTuple):
    """Tokens of a text, and the characters text[starts[i]:ends[i]] that token i stands for, white space included.

    A token that is a part of a character covers that character, so tokens may overlap. A token of no character, such
    as the mark of a word's beginning alone, covers none.
    """

    ids: NDArray[np.int32]
    """Tokenizer ids (N,), those of `Tokenizer.encode`."""
    starts: NDArray[np.int32]
    """First character of each token (N,)."""
    ends: NDArray[np.int32]
    """Character behind the last one of each token (N,)."""


def locate_bytes(text: str, ids: NDArray[np.int32], num_bytes: NDArray[np.int32]) -> LocatedTokens:
    """Tokens `ids` (N,) that stand for `num_bytes` (N,) bytes each of the text's UTF-8, without gaps.

    Example: the euro sign has three bytes; tokens of 1, 2 and 1 bytes of "<euro>x" cover the characters 0-1, 0-1, 1-2.
    """
    in_bytes = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    character = np.cumsum((in_bytes & 0xC0) != 0x80, dtype=np.int32) - 1  # of each byte
    byte_ends = np.cumsum(num_bytes)
    assert (byte_ends[-1] if len(ids) else 0) == len(in_bytes), "the tokens are not those of the text"
    return LocatedTokens(ids, character[byte_ends - num_bytes], character[byte_ends - 1] + 1)


def locate_words(text: str, words: Sequence[str]) -> NDArray[np.int32]:
    """Where each character of the words (W,), back to back, stands in the text.

    Between words, and within them, white space and control characters of the text may be missing.

    Raises:
        ValueError: if the words are not the text's characters in their order.
    """
    places = []
    place = 0
    for character in "".join(words):
        while place < len(text) and text[place] != character and _may_be_dropped(text[place]):
            place += 1
        if place == len(text) or text[place] != character:
            raise ValueError(
                f"The tokenizer's rules for words change the text at character {place}, "
                f"{text[max(0, place - 20) : place + 20]!r}, so that its tokens have no place there: change the text, "
                "or use a byte-level BPE or SentencePiece."
            )
        places.append(place)
        place += 1
    return np.array(places, dtype=np.int32)


def _may_be_dropped(character: str) -> bool:
    return character.isspace() or character <= _LAST_CONTROL
