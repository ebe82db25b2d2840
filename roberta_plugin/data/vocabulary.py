"""The vocabulary of a model: dict.txt, the special symbols, and the mapping between tokenizer ids and model ids.

Stage of the flow in `roberta_plugin/data/__init__.py`. Model ids are fairseq's: 0 <s>, 1 <pad>, 2 </s>,
3 <unk>, then the lines of dict.txt in order, then <mask>, unless dict.txt contains it already.

Example: a tokenizer with the tokens "a" "b" "c" (ids 0 1 2) and a dict.txt with the lines "b 9" and "a 4":

    symbols              <s> <pad> </s> <unk> b a <mask>      V = 7
    tokenizer_to_model   [5, 4, 3]                            a -> 5, b -> 4, c -> 3 (<unk>)
    model_to_tokenizer   [-1, -1, -1, -1, 1, 0, -1]

Shapes: V symbols in the vocabulary, <mask> included.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers import huggingface, is_of_hugging_face
from roberta_plugin.data.tokenizers.additions import base_of
from roberta_plugin.data.tokenizers.base import MADE_UP as MADE_UP
from roberta_plugin.data.tokenizers.base import MASK as MASK
from roberta_plugin.data.tokenizers.base import SPECIALS as SPECIALS
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.files import write_text

_OVERWRITE = "#fairseq:overwrite"


@dataclass(frozen=True)
class Row:
    """A line of dict.txt; `overwrites` gives a symbol that occurred before the id of this line."""

    symbol: str
    count: int
    overwrites: bool = False


class Vocabulary:
    """Symbols and their ids.

    Attributes:
        bos_id, pad_id, eos_id, unk_id, mask_id: ids of <s>, <pad>, </s>, <unk>, <mask>.
        symbols: the symbol of each id (V,).
        counts: frequency of each symbol as fairseq counts: 1 for a special symbol, else the number in dict.txt (V,).
        num_binarized: number of ids that binarized data can contain: V without the <mask> that the task appends.
    """

    bos_id, pad_id, eos_id, unk_id = range(4)

    def __init__(self, rows: Iterable[Row]) -> None:
        """Make a vocabulary from the lines of a dict.txt.

        Raises:
            ValueError: if a symbol occurs twice and the second line is not marked as overwriting.
        """
        self._rows = list(rows)
        self.symbols = list(SPECIALS)
        counts = [1] * len(SPECIALS)
        self._ids = {symbol: index for index, symbol in enumerate(SPECIALS)}
        for number, row in enumerate(self._rows, start=1):
            if row.symbol in self._ids and not row.overwrites:
                raise ValueError(
                    f"line {number}: the symbol {row.symbol!r} occurred before or is special. Remove the line, or end "
                    f"it with {_OVERWRITE} to replace the earlier one."
                )
            self._ids[row.symbol] = len(self.symbols)
            self.symbols.append(row.symbol)
            counts.append(row.count)
        self.num_binarized = len(self.symbols)
        if MASK in self._ids:
            counts[self._ids[MASK]] += 1  # fairseq's task adds the symbol, and so counts it once more
        else:
            self._ids[MASK] = len(self.symbols)
            self.symbols.append(MASK)
            counts.append(1)
        self.mask_id = self._ids[MASK]
        self.counts: NDArray[np.int64] = np.array(counts, dtype=np.int64)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a dict.txt.

        Raises:
            ValueError: if it is empty, or a line is not `symbol count`; the message names the file and the line.
        """
        path = Path(path)
        if not path.is_file():
            inner = [str(found.parent) for found in sorted(path.parent.glob("*/dict.txt"))[:5]]
            raise FileNotFoundError(
                f"{path} does not exist: name the folder that holds dict.txt, a data-bin of `roberta binarize` or a "
                f"tokenizer of `roberta tokenizer train`{', such as ' * bool(inner)}{', '.join(inner)}."
            )
        try:
            vocabulary = cls(_parse(line, number) for number, line in enumerate(_read_rows(path), start=1))
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from None
        if not vocabulary._rows:
            raise ValueError(f"{path} is empty: copy it again, or name the folder with the dict.txt of the tokenizer.")
        return vocabulary

    @classmethod
    def from_symbols(cls, symbols: Sequence[str]) -> Vocabulary:
        """The vocabulary with these symbols in this order (V,), special ones included."""
        listed = list(symbols[len(SPECIALS) :])
        if listed and listed[-1] == MASK:
            listed.pop()  # every vocabulary has it at its end
        return cls(Row(symbol, 1) for symbol in listed)

    @classmethod
    def from_tokenizer(cls, folder: str | os.PathLike[str]) -> Vocabulary:
        """The dict.txt in a tokenizer's folder; Hugging Face's files without one are their own.

        Raises:
            FileNotFoundError: if there is neither.
        """
        path = Path(folder) / "dict.txt"
        if not path.is_file() and is_of_hugging_face(path.parent):
            return cls.from_symbols(huggingface.read_tokenizer(path.parent).symbols)
        return cls.load(path)

    def extended(self, symbols: Iterable[str]) -> Vocabulary:
        """This vocabulary with further symbols, which get the next ids; only <mask> is after them."""
        return Vocabulary([*self._rows, *(Row(symbol, 0) for symbol in symbols)])

    @property
    def sha256(self) -> str:
        """A hash of the symbols in the order of their ids."""
        return hashlib.sha256("\n".join(self.symbols).encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write dict.txt as fairseq does, but keep the overwrite marks, which are needed to read it again."""
        write_text(path, self.as_text())

    def as_text(self) -> str:
        """The content of dict.txt."""
        return "".join(f"{row.symbol} {row.count}{f' {_OVERWRITE}' * row.overwrites}\n" for row in self._rows)

    def __len__(self) -> int:
        return len(self.symbols)

    def index(self, symbol: str) -> int:
        """Id of a symbol, or `unk_id` if it is not in the vocabulary."""
        return self._ids.get(symbol, self.unk_id)

    def never_masked(self) -> NDArray[np.bool_]:
        """True for ids that must not be masked: <s> <pad> </s> <unk> <mask> and madeupwordNNNN (V,)."""
        return self._is_no_text.copy()

    def never_drawn(self) -> NDArray[np.bool_]:
        """True for ids that must not be random replacements: as `never_masked`, and overwritten ids (V,)."""
        never = self._is_no_text.copy()
        never[[index for index, symbol in enumerate(self.symbols) if self._ids[symbol] != index]] = True
        return never

    def tokenizer_to_model(self, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Model id of each tokenizer id, `unk_id` if the symbol is not in dict.txt (number of tokenizer ids,)."""
        return np.array([self.index(symbol) for symbol in tokenizer.symbols], dtype=np.int32)

    def model_to_tokenizer(self, tokenizer: Tokenizer) -> NDArray[np.int32]:
        """Tokenizer id of each model id, -1 if it has none (V,)."""
        ids = {symbol: index for index, symbol in enumerate(tokenizer.symbols)}
        back = np.array([ids.get(symbol, -1) for symbol in self.symbols], dtype=np.int32)
        back[: len(SPECIALS)] = -1
        back[self.mask_id] = -1
        return back

    def word_starts(self, tokenizer: Tokenizer) -> NDArray[np.bool_]:
        """True for model ids that begin a word; an id that the tokenizer does not have is a word by itself (V,)."""
        back = self.model_to_tokenizer(tokenizer)
        return np.where(back < 0, True, tokenizer.word_starts()[back])

    def word_ends(self, tokenizer: Tokenizer) -> NDArray[np.bool_]:
        """True for model ids after which a word begins whatever follows: added tokens, which touch no word (V,)."""
        back = self.model_to_tokenizer(tokenizer)
        return back >= len(base_of(tokenizer).symbols)

    @cached_property
    def _is_no_text(self) -> NDArray[np.bool_]:
        is_no_text = np.array([symbol.startswith(MADE_UP) for symbol in self.symbols], dtype=np.bool_)
        is_no_text[: len(SPECIALS)] = True
        is_no_text[self.mask_id] = True
        return is_no_text


def _read_rows(path: Path) -> list[str]:
    """Lines of the file; line ends as in Python's text mode."""
    data = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line}: byte 0x{data[error.start]:02x} is not valid UTF-8; save the file as UTF-8."
        ) from None
    if not lines[-1]:
        lines.pop()
    return lines


_MOST = 2**62  # times two, the most that numpy counts


def _parse(line: str, number: int) -> Row:
    """Read one line as fairseq does: trailing white space is ignored, and symbols may contain spaces."""
    symbol, space, field = line.rstrip().rpartition(" ")
    overwrites = field == _OVERWRITE
    if overwrites:
        symbol, space, field = symbol.rpartition(" ")
    try:
        if not space or not -_MOST <= (count := int(field)) <= _MOST:
            raise ValueError
        return Row(symbol, count, overwrites)
    except ValueError:
        raise ValueError(
            f"line {number}: {line[:80]!r} is not `symbol count`, with a whole number up to 2^62 after a space. "
            "Is this the dict.txt of the tokenizer?"
        ) from None
