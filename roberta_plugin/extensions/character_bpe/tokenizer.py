"""Character-level BPE on words, like BERT's vocabulary of 30K (paper, section 4.4): character_bpe.json.

Moses' rules, which are made for one language, split text into words. The first piece of a word begins with U+2581.
Characters that were absent or rare in the training text are <unk>. Decoding does not restore the text exactly: it puts
spaces where Moses' rules expect them.

Example, with _ for U+2581: "the cats, too" -> words _the _cats _, _too -> pieces _the _cat s _, _t oo.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import LocatedTokens, check_known, join_ids, locate_words
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import parse_json

FILES = ("character_bpe.json",)
WORD_START = "\u2581"
_MAX_REMEMBERED_WORDS = 2**18


class CharacterBpe:
    """Moses' rules, then BPE.

    Attributes:
        bpe: the BPE as JSON of Hugging Face's tokenizers.
        language: code of the language whose rules cut text into words.
        symbols: symbol in dict.txt of each id, the piece itself.
    """

    name = "character_bpe"

    def __init__(self, bpe: str, *, language: str = "en") -> None:
        """Make a tokenizer.

        Raises:
            ValueError: if `bpe` is not such JSON.
        """
        self.bpe = bpe
        self.language = language
        ids: dict[str, int] = self._model.get_vocab()
        self.symbols: list[str] = sorted(ids, key=ids.__getitem__)
        self._remembered: dict[str, list[int]] = {}

    @classmethod
    def load(cls, folder: Path) -> CharacterBpe:
        """Read character_bpe.json.

        Raises:
            ValueError: naming the file, if `save` did not write it.
        """
        path = folder / FILES[0]
        try:
            content = parse_json(path.read_bytes())
            return cls(json.dumps(content["bpe"], ensure_ascii=False), language=content["language"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is not a character-level BPE of `roberta tokenizer train` ({error}): restore it."
            ) from error

    def save(self, folder: Path) -> None:
        """Write character_bpe.json."""
        with atomic_write(folder / FILES[0]) as file:
            file.write(self._file_content())

    def description(self) -> dict[str, Any]:
        """Kind, number of ids, language, and SHA-256 of the file."""
        digest = hashlib.sha256(self._file_content()).hexdigest()
        size = len(self.symbols)
        return {"kind": self.name, "num_ids": size, "language": self.language, "sha256": {FILES[0]: digest}}

    def words(self, text: str) -> list[str]:
        """Words of a text by Moses' rules, each with the word-start mark in front."""
        return [WORD_START + word for word in self._moses[0].tokenize(_without_marks(text), escape=False)]

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids: list[int] = []
        for word in self.words(text):
            word_ids = self._remembered.get(word)
            if word_ids is None:
                word_ids = self._model.encode([word], is_pretokenized=True).ids
                if len(self._remembered) >= _MAX_REMEMBERED_WORDS:
                    self._remembered.clear()
                self._remembered[word] = word_ids
            ids += word_ids
        return ids

    def encode_lines(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line."""
        return join_ids([self.encode(line) for line in lines])

    def locate(self, text: str) -> LocatedTokens:
        """Ids of a text and their positions.

        Raises:
            ValueError: if Moses' rules change characters of the text.
        """
        words = self.words(text)
        positions = locate_words(_without_marks(text), [word.removeprefix(WORD_START) for word in words])
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        first = 0
        for word in words:
            encoded = self._model.encode([word], is_pretokenized=True)
            ids += encoded.ids
            for start, end in encoded.offsets:  # characters of the word, the first of which is the mark
                start, end = first + max(start - 1, 0), first + end - 1
                starts.append(int(positions[start]))
                ends.append(int(positions[end - 1]) + 1 if end > start else starts[-1])
            first += len(word) - 1
        return LocatedTokens(*(np.array(values, dtype=np.int32) for values in (ids, starts, ends)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, with spaces where Moses' rules expect them."""
        check_known(ids, len(self.symbols))
        words: list[str] = []
        for index in ids:
            piece = self.symbols[index]
            if piece.startswith(WORD_START) or not words:
                words.append(piece.removeprefix(WORD_START))
            else:
                words[-1] += piece
        return str(self._moses[1].detokenize(words, unescape=False))

    def word_starts(self) -> NDArray[np.bool_]:
        """True for ids that begin a word (number of ids,)."""
        return np.array([symbol.startswith(WORD_START) for symbol in self.symbols], dtype=np.bool_)

    def begins_word(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """True for tokens of a text (N,) that begin a word: their pieces begin with the mark (N,)."""
        begins: NDArray[np.bool_] = self._word_starts[ids]
        return begins

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(CharacterBpe, language=self.language), (self.bpe,)

    @cached_property
    def _word_starts(self) -> NDArray[np.bool_]:
        return self.word_starts()

    @cached_property
    def _model(self) -> Any:
        import tokenizers

        try:
            return tokenizers.Tokenizer.from_str(self.bpe)
        except Exception as error:  # the library raises Exception itself
            raise ValueError(str(error)) from error

    @cached_property
    def _moses(self) -> tuple[Any, Any]:
        import sacremoses

        return sacremoses.MosesTokenizer(self.language), sacremoses.MosesDetokenizer(self.language)

    def _file_content(self) -> bytes:
        content = {"language": self.language, "bpe": json.loads(self.bpe)}
        return json.dumps(content, ensure_ascii=False).encode("utf-8")


def _without_marks(text: str) -> str:
    """Replace word-start marks in the text, which would split a word in two."""
    return text.replace(WORD_START, "_")
