"""The interface of all tokenizers, and the positions of tokens in a text: the characters that each covers.

Shapes: N tokens of a text, W characters of its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
"""The first symbols of every model, by their ids."""
MASK, UNKNOWN = "<mask>", "<unk>"
MADE_UP = "madeupword"  # fairseq's padding symbols, which never occur in text


class Tokenizer(Protocol):
    """Text -> tokenizer ids, and back. The ids are the tokenizer's own; `Vocabulary` maps them to a model's.

    Pickles without open files or engines, for worker processes.

    Example, byte-level BPE: encode_lines(["the cat", "", "a"]) -> ids [1169, 3797, 64] and lengths [2, 0, 1].
    """

    @property
    def name(self) -> str:
        """The kind of tokenizer, as `roberta tokenizer train --kind` calls it."""
        ...

    @property
    def symbols(self) -> Sequence[str]:
        """Symbol in dict.txt of each tokenizer id."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ...

    def encode_lines(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line; faster than `encode` on each."""
        ...

    def locate(self, text: str) -> LocatedTokens:
        """Ids of a text, and the characters of the text that each id covers.

        Raises:
            ValueError: if the tokenizer changes the text in a way that hides this.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        ...

    def word_starts(self) -> NDArray[np.bool_]:
        """True for ids that begin a word (number of ids,)."""
        ...

    def begins_word(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """True for tokens of a text (N,) that begin a word by the tokenizer's rules (N,), as the first does."""
        ...

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files into a folder, for `load_tokenizer`."""
        ...

    def description(self) -> dict[str, Any]:
        """The tokenizer's identity for a manifest: plain values and hashes of its files."""
        ...


def join_ids(ids: Sequence[Sequence[int] | NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Ids of each line -> all ids back to back, and the number of ids of each line."""
    flat = [index for line in ids for index in line]
    return np.array(flat, dtype=np.int32), np.array([len(line) for line in ids], dtype=np.int32)


def check_known(ids: Sequence[int], number: int) -> None:
    """Refuse ids that a tokenizer with this number of ids does not have."""
    for index in ids:
        if not 0 <= index < number:
            raise ValueError(f"Token id {index} is not one of the {number} ids of this tokenizer.")


_LAST_CONTROL = "\x1f"


class LocatedTokens(NamedTuple):
    """Tokens of a text; token i covers the characters text[starts[i]:ends[i]], white space included.

    A token that is part of a character covers the whole character, so tokens may overlap. A token without characters,
    such as a lone word-start mark, covers none.

    Example: "the cat" in the tokens "the" and " cat" has starts [0, 3] and ends [3, 7].
    """

    ids: NDArray[np.int32]
    """Tokenizer ids (N,), as from `Tokenizer.encode`."""
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
        while position < len(text) and text[position] != character:
            if not text[position].isspace() and text[position] > _LAST_CONTROL:
                break
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
