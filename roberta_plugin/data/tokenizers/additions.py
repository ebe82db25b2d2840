"""Additions that Hugging Face's files may make to a tokenizer: added tokens, and a space in front of texts.

An added token is found in a text before the tokenizer sees it, and has one id; the text between two of them is
tokenized by itself. `tokenizers` looks for them, so that its rules hold: the leftmost, of those the longest, and the
flags of each (`AddedToken`). With `add_prefix_space`, such a part gets a space in front, unless it begins with one.

tokenizer_additions.json, beside the tokenizer's own files, holds both. In dict.txt an added token is its own symbol.

Example: "boat [E1] x" with the added token [E1] -> the ids of "boat ", one id, the ids of " x".
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import MADE_UP, LocatedTokens, Tokenizer, check_known
from roberta_plugin.data.tokenizers.sentencepiece import SentencePiece
from roberta_plugin.data.tokenizers.whitespace import Whitespace
from roberta_plugin.files import write_text
from roberta_plugin.json_files import read_json

FILE = "tokenizer_additions.json"
_KEYS = ["add_prefix_space", "added_tokens"]
MASK_OF_BERT = "[MASK]"
_REMEDY = "import the model again"


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text as a whole. The flags have the names of `tokenizers.AddedToken`."""

    content: str
    lstrip: bool = False
    """True if the match includes the white space before it."""
    rstrip: bool = False
    """True if the match includes the white space after it."""
    single_word: bool = False
    """True if it is found only where no letter, digit or underscore touches it."""
    normalized: bool = False
    """True if it is searched for in the text as the tokenizer normalizes it."""
    special: bool = False
    """True if it is not text; only other programs ask for this."""
    is_piece: bool = False
    """True if it has the id of a piece of the tokenizer, instead of one of its own."""

    @property
    def flags(self) -> dict[str, Any]:
        """The arguments of `tokenizers.AddedToken`."""
        return {name: value for name, value in asdict(self).items() if name != "is_piece"}


class _Part(NamedTuple):
    text: str
    """As the tokenizer normalizes it."""
    token: int
    """Tokenizer id of an added token; -1 for text."""
    start: int
    end: int


def symbol_of(content: str) -> str:
    """A symbol for dict.txt that represents a text: the content itself, if no line of that file can be misread.

    Example: "[E1]" -> "[E1]"; "a b" -> "a\\u0020b"; "12", which would be another token's number -> "\\u0031\\u0032".
    """
    is_taken = content.isdecimal() or content.startswith(MADE_UP)
    return "".join(
        f"\\u{ord(each):04x}" if is_taken or each.isspace() or not each.isprintable() else each for each in content
    )


class TokenizerWithAdditions:
    """A tokenizer with added tokens, whose ids follow its own, and perhaps with a space in front of texts.

    Attributes:
        base: the tokenizer itself.
        tokens: the added tokens.
        add_prefix_space: whether texts get a space in front.
        special_ids: Hugging Face's ids of <s>, <pad>, </s> and <unk>, which it calls by BERT's names; empty: as here.
        composes: whether texts get one character for a letter and its accent (Unicode's NFC), but for added tokens.
        symbols: symbol in dict.txt of each id.
    """

    def __init__(
        self,
        base: Tokenizer,
        tokens: Sequence[AddedToken],
        *,
        add_prefix_space: bool = False,
        special_ids: Sequence[int] = (),
        composes: bool = False,
    ) -> None:
        """Make a tokenizer.

        Raises:
            ValueError: if a token that is a piece is not a piece of this tokenizer.
        """
        self.base, self.tokens, self.add_prefix_space = base, tuple(tokens), add_prefix_space
        self.special_ids, self.composes = tuple(map(int, special_ids)), composes
        ids = {piece: index for index, piece in enumerate(pieces_of(base))}
        for token in self.tokens:
            if token.is_piece and token.content not in ids:
                raise ValueError(f"the added token {token.content!r} is not a piece of the tokenizer: {_REMEDY}.")
        new = [token for token in self.tokens if not token.is_piece]
        self.symbols = [*base.symbols, *(symbol_of(token.content) for token in new)]
        self._contents = [token.content for token in new]
        numbers = {token.content: len(ids) + number for number, token in enumerate(new)}
        self._ids = {token.content: numbers.get(token.content, ids.get(token.content, -1)) for token in self.tokens}

    @property
    def name(self) -> str:
        """The kind of the tokenizer itself."""
        return self.base.name

    @property
    def pieces(self) -> list[str]:
        """The piece of each id of the tokenizer itself, then the added tokens."""
        return [*pieces_of(self.base), *self._contents]

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids: list[int] = self.encode_lines([text])[0].tolist()
        return ids

    def encode_lines(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line."""
        if not self.tokens and not self.composes:  # then a line is one part
            return self.base.encode_lines([f" {line}" if line and self._needs_space(line) else line for line in lines])
        parts = [list(self._parts(line)) for line in lines]
        flat, sizes = self.base.encode_lines([part.text for line in parts for part in line if part.token < 0])
        texts = iter(np.split(flat, np.cumsum(sizes)[:-1]))
        ids: list[NDArray[np.int32]] = []
        lengths = np.zeros(len(lines), dtype=np.int32)
        for number, line in enumerate(parts):
            for part in line:
                ids.append(next(texts) if part.token < 0 else np.array([part.token], dtype=np.int32))
                lengths[number] += len(ids[-1])
        return np.concatenate([np.empty(0, dtype=np.int32), *ids]), lengths

    def locate(self, text: str) -> LocatedTokens:
        """Ids of a text and their positions; an added token covers the white space that it takes along.

        Raises:
            ValueError: if the tokenizer changes the text in a way that hides them.
        """
        parts = [LocatedTokens(*(np.empty(0, dtype=np.int32) for _ in range(3)))]
        for part in self._parts(text):
            if part.token >= 0:
                ids, starts, ends = ([value] for value in (part.token, part.start, part.end))
                parts.append(LocatedTokens(*(np.array(each, dtype=np.int32) for each in (ids, starts, ends))))
                continue
            span = text[part.start : part.end]
            space = int(self._needs_space(span))
            located = self.base.locate(" " * space + span)
            if located.ids.tolist() != self.base.encode(part.text):
                raise ValueError(
                    f"A character of {span[:40]!r} is in an added token or a composed letter, so it cannot be located."
                )
            moved = (np.maximum(each - space, 0) + part.start for each in located[1:])
            parts.append(LocatedTokens(located.ids, *moved))
        return LocatedTokens(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        check_known(ids, len(self.symbols))
        texts: list[str] = []
        for is_own, run in self._runs(np.asarray(ids, dtype=np.int64)):
            if is_own:
                texts += [self._contents[index - len(self.base.symbols)] for index in run.tolist()]
            else:  # SentencePiece drops the space before a text
                had_space = texts and isinstance(self.base, SentencePiece) and self._base_starts[run[0]]
                texts.append((" " if had_space else "") + self.base.decode(run.tolist()))
        return (" " if isinstance(self.base, Whitespace) else "").join(texts)

    def word_starts(self) -> NDArray[np.bool_]:
        """True for ids that begin a word, as added tokens do (number of ids,)."""
        return np.concatenate([self.base.word_starts(), np.ones(len(self._contents), dtype=np.bool_)])

    def begins_word(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """True for tokens of a text (N,) that begin a word (N,): added tokens, and what follows them."""
        runs = self._runs(np.asarray(ids, dtype=np.int64))
        begins = [np.ones(len(run), dtype=np.bool_) if is_own else self.base.begins_word(run) for is_own, run in runs]
        return np.concatenate([np.empty(0, dtype=np.bool_), *begins])

    def save(self, folder: Path) -> None:
        """Write tokenizer_additions.json, and then the tokenizer's own files, so that none is found without it."""
        write_text(folder / FILE, self._content)
        self.base.save(folder)

    def description(self) -> dict[str, Any]:
        """The description of the tokenizer itself, with the file of the added tokens."""
        description = self.base.description()
        digests = {**description["sha256"], FILE: hashlib.sha256(self._content.encode()).hexdigest()}
        return {**description, "num_ids": len(self.symbols), "sha256": digests}

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            TokenizerWithAdditions,
            add_prefix_space=self.add_prefix_space,
            special_ids=self.special_ids,
            composes=self.composes,
        )
        return make, (self.base, self.tokens)

    def _parts(self, text: str) -> Iterator[_Part]:
        """Added tokens, and what is between them."""
        if not self.tokens or (not self._normalizes and not self._any_content.search(text)):
            parts = [_Part(text, -1, 0, len(text))] if text else []
        else:
            encoded = self._finder.encode(text, add_special_tokens=False)
            texts = encoded.tokens if self._normalizes else [text[slice(*span)] for span in encoded.offsets]
            parts = [
                _Part(part, self._ids_of_finder.get(index, -1), *span)
                for part, index, span in zip(texts, encoded.ids, encoded.offsets, strict=True)
            ]
        for part in parts:
            if self.composes and part.token < 0:
                part = part._replace(text=unicodedata.normalize("NFC", part.text))
            yield part._replace(text=f" {part.text}") if part.token < 0 and self._needs_space(part.text) else part

    def _needs_space(self, text: str) -> bool:
        return self.add_prefix_space and not text.startswith(" ")

    def _runs(self, ids: NDArray[np.int64]) -> Iterator[tuple[bool, NDArray[np.int64]]]:
        """Neighbouring ids that are all of added tokens, or all of the tokenizer itself."""
        is_own = ids >= len(self.base.symbols)
        for run in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(is_own)) + 1):
            if len(run):
                yield bool(is_own[run[0]]), ids[run]

    @cached_property
    def _normalizes(self) -> bool:
        """True if the tokenizer itself changes a text before it looks for pieces."""
        return isinstance(self.base, SentencePiece) and bool(self.base.charsmap)

    @cached_property
    def _any_content(self) -> re.Pattern[str]:
        """Finds added tokens without their flags: most lines of a corpus have none, and need no more."""
        return re.compile("|".join(re.escape(token.content) for token in self.tokens))

    @cached_property
    def _base_starts(self) -> NDArray[np.bool_]:
        return self.base.word_starts()

    @cached_property
    def _finder(self) -> Any:
        """A tokenizer of `tokenizers` that knows the added tokens alone: id 0 is a stretch of other text."""
        import tokenizers

        if self._normalizes:  # slow, but it shows the normalized text
            finder = tokenizers.Tokenizer(tokenizers.models.Unigram([("<unk>", 0.0)], unk_id=0, byte_fallback=False))
            assert isinstance(self.base, SentencePiece)
            finder.normalizer = tokenizers.normalizers.Precompiled(self.base.charsmap)
        else:
            finder = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
        finder.add_tokens([tokenizers.AddedToken(**token.flags) for token in self.tokens])
        return finder

    @cached_property
    def _ids_of_finder(self) -> dict[int, int]:
        """The finder's id of each added token -> its tokenizer id."""
        return {number: self._ids[token.content] for number, token in self._finder.get_added_tokens_decoder().items()}

    @cached_property
    def _content(self) -> str:
        content = {"add_prefix_space": self.add_prefix_space, "added_tokens": [asdict(token) for token in self.tokens]}
        content |= {"special_ids": self.special_ids} if self.special_ids else {}
        content |= {"composes": True} if self.composes else {}
        return json.dumps(content, indent=2) + "\n"


def with_additions(
    base: Tokenizer, tokens: Sequence[AddedToken], *, add_prefix_space: bool = False, **further: Any
) -> Tokenizer:
    """The tokenizer with these additions; the tokenizer itself without any."""
    if not tokens and not add_prefix_space and not any(further.values()):
        return base
    return TokenizerWithAdditions(base, tokens, add_prefix_space=add_prefix_space, **further)


def load_additions(base: Tokenizer, folder: Path) -> Tokenizer:
    """The tokenizer of a folder with that folder's additions; the tokenizer itself without any."""
    content = read_json(folder / FILE, keys=_KEYS, remedy=_REMEDY)
    if content is None:
        return base
    try:
        tokens = [AddedToken(**token) for token in content["added_tokens"]]
        options = {name: content[name] for name in ("add_prefix_space", "special_ids", "composes") if name in content}
        return with_additions(base, tokens, **options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / FILE} does not belong to the tokenizer beside it ({error}): {_REMEDY}.") from error


def base_of(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without its additions."""
    return tokenizer.base if isinstance(tokenizer, TokenizerWithAdditions) else tokenizer


def additions_of(tokenizer: Tokenizer) -> tuple[tuple[AddedToken, ...], bool]:
    """The added tokens of a tokenizer, and whether it puts a space in front of texts."""
    if not isinstance(tokenizer, TokenizerWithAdditions):
        return (), False
    return tokenizer.tokens, tokenizer.add_prefix_space


def special_ids_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Hugging Face's ids of <s>, <pad>, </s> and <unk>, where they are others and have BERT's names; else empty."""
    return tokenizer.special_ids if isinstance(tokenizer, TokenizerWithAdditions) else ()


def own_mask_of(tokenizer: Tokenizer) -> str | None:
    """The name of the mask in the model's own tokenizer, if it is not `<mask>`: [MASK], as in BERT."""
    return MASK_OF_BERT if special_ids_of(tokenizer) else None


def composes(tokenizer: Tokenizer) -> bool:
    """True if the tokenizer composes letters and accents (NFC) before it reads a text."""
    return isinstance(tokenizer, TokenizerWithAdditions) and tokenizer.composes


def pieces_of(tokenizer: Tokenizer) -> Sequence[str]:
    """The piece of each id, as it is in the text: of byte-level BPE, symbols are only numbers."""
    pieces: Sequence[str] = getattr(tokenizer, "pieces", tokenizer.symbols)
    return pieces
