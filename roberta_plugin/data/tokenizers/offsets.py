"""Positions of tokens in the text: the characters that each token covers.

Shapes: N tokens of a text, W characters of its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LAST_CONTROL = "\x1f"


class LocatedTokens(NamedTuple):
    """Tokens of a text; token i covers the characters text[starts[i]:ends[i]], white space included.

    A token that is part of a character covers the whole character, so tokens may overlap. A token without characters,
    such as a lone word-start mark, covers none.

    Example: "the cat" in the tokens "the" and " cat" has starts [0, 3] and ends [3, 7].
    """

    ids: NDArray[np.int32]
    """Tokenizer ids (N,), those of `Tokenizer.encode`."""
    starts: NDArray[np.int32]
    """First character of each token (N,)."""
    ends: NDArray[np.int32]
    """Position after the last character of each token (N,)."""


def locate_bytes(text: str, ids: NDArray[np.int32], num_bytes: NDArray[np.int32]) -> LocatedTokens:
    """Locate tokens `ids` (N,) that cover `num_bytes` (N,) bytes each of the text's UTF-8, without gaps.

    Example: the euro sign has three bytes; tokens of 1, 2 and 1 bytes of "<euro>x" cover the characters 0-1, 0-1, 1-2.
    """
    in_bytes = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    character = np.cumsum((in_bytes & 0xC0) != 0x80, dtype=np.int32) - 1  # of each byte
    byte_ends = np.cumsum(num_bytes)
    assert (byte_ends[-1] if len(ids) else 0) == len(in_bytes), "the tokens are not those of the text"
    return LocatedTokens(ids, character[byte_ends - num_bytes], character[byte_ends - 1] + 1)


def locate_words(text: str, words: Sequence[str]) -> NDArray[np.int32]:
    """Position in the text of each character of the concatenated words (W,).

    White space and control characters of the text may be missing in and between the words.

    Example: locate_words("a  cat", ["a", "cat"]) -> [0, 3, 4, 5].

    Raises:
        ValueError: if the words are not the text's characters in their order.
    """
    positions = []
    position = 0
    for character in "".join(words):
        while position < len(text) and text[position] != character and _may_be_dropped(text[position]):
            position += 1
        if position == len(text) or text[position] != character:
            raise ValueError(
                f"The tokenizer's rules for words change the text at character {position}, "
                f"{text[max(0, position - 20) : position + 20]!r}, so its tokens cannot be located: change the "
                "text, or use a byte-level BPE or SentencePiece."
            )
        positions.append(position)
        position += 1
    return np.array(positions, dtype=np.int32)


def _may_be_dropped(character: str) -> bool:
    return character.isspace() or character <= _LAST_CONTROL
