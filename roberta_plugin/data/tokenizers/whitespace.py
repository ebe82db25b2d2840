"""The symbols of dict.txt themselves, between white space: words, amino acids, phonemes (whitespace.json).

As fairseq-preprocess has them without a BPE. White space is Unicode's, as in Hugging Face's WhitespaceSplit. What is
not among the symbols is <unk>, and so is the name of a special symbol in a text. Decoding puts one space between words.

Example: with the symbols "the" and "cat", "the  old cat" -> the <unk> cat.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import MASK, SPECIALS, LocatedTokens, check_known, join_ids
from roberta_plugin.data.white_space import one_line, spans_between
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import parse_json

FILES = ("whitespace.json",)
UNKNOWN = "<unk>"
NO_WORDS = {*SPECIALS, MASK}


class Whitespace:
    """Words between white space.

    Attributes:
        words: the known words, in the order of their ids.
        symbols: symbol in dict.txt of each id: <unk>, then the words.
    """

    name = "whitespace"

    def __init__(self, words: Sequence[str]) -> None:
        """Make a tokenizer.

        Raises:
            ValueError: if a word is not valid, or occurs twice.
        """
        self.words = tuple(words)
        self.symbols: list[str] = [UNKNOWN, *self.words]
        self._ids = {word: number for number, word in enumerate(self.words, start=1)}
        for word, count in Counter(self.words).items():
            if count > 1 or not is_word(word):
                why = f"occurs {count} times" if count > 1 else "is empty, has white space in it, or is special"
                raise ValueError(f"the word {word!r} {why}")

    @classmethod
    def of_symbols(cls, symbols: Iterable[str]) -> Whitespace:
        """The tokenizer of a model's symbols; a symbol with white space is found in no text, in fairseq neither."""
        return cls([symbol for symbol in dict.fromkeys(symbols) if is_word(symbol)])

    @classmethod
    def load(cls, folder: Path) -> Whitespace:
        """Read whitespace.json.

        Raises:
            ValueError: naming the file, if `save` did not write it.
        """
        path = folder / FILES[0]
        try:
            words = parse_json(path.read_bytes())["words"]
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("'words' is not a list of texts")
            return cls(words)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} does not hold the words of a tokenizer ({error}): restore it.") from error

    def save(self, folder: Path) -> None:
        """Write whitespace.json."""
        with atomic_write(folder / FILES[0]) as file:
            file.write(self._content)

    def description(self) -> dict[str, Any]:
        """Kind, number of ids, and SHA-256 of the file."""
        digest = hashlib.sha256(self._content).hexdigest()
        return {"kind": self.name, "num_ids": len(self.symbols), "sha256": {FILES[0]: digest}}

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return [self._ids.get(word, 0) for word in words_of(text)]

    def encode_lines(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line."""
        return join_ids([self.encode(line) for line in lines])

    def locate(self, text: str) -> LocatedTokens:
        """Ids of a text and their positions."""
        spans = np.array(list(spans_between(text)), dtype=np.int32).reshape(-1, 2)
        return LocatedTokens(np.array(self.encode(text), dtype=np.int32), spans[:, 0], spans[:, 1])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, with a space between words."""
        check_known(ids, len(self.symbols))
        return " ".join(self.symbols[index] for index in ids)

    def word_starts(self) -> NDArray[np.bool_]:
        """Each id begins a word (number of ids,)."""
        return np.ones(len(self.symbols), dtype=np.bool_)

    def begins_word(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Each token of a text (N,) begins a word (N,)."""
        return np.ones(len(ids), dtype=np.bool_)

    def __reduce__(self) -> tuple[Any, ...]:
        return Whitespace, (self.words,)

    @cached_property
    def _content(self) -> bytes:
        return json.dumps({"words": self.words}, ensure_ascii=False, indent=0).encode("utf-8")


def words_of(text: str) -> list[str]:
    """The words of a text."""
    return [word for word in one_line(text).split(" ") if word]


def is_word(symbol: str) -> bool:
    """True if a text can have this symbol as a word."""
    return words_of(symbol) == [symbol] and symbol not in NO_WORDS


def is_meant(folder: str | os.PathLike[str]) -> bool:
    """True if a tokenizer is named by the word `whitespace` instead of a folder."""
    return os.fspath(folder) == Whitespace.name and not Path(folder).exists()
