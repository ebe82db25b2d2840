"""The interface of all tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.offsets import LocatedTokens


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
        """Whether each id begins a word (number of ids,)."""
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
