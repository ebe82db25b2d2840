"""A tokenizer with further words: each becomes one token, and ids of the old tokens stay.

byte_level_bpe and character_bpe get merges of the word's pieces, from left to right and after all others, so that the
joins on the way become tokens too; sentencepiece gets the word as a piece that is a little likelier than its parts.
Other text keeps its tokens, except where the first pieces of a new word stand side by side.

Example: "tokenizer" in the pieces token|iz|er: the merges token+iz and tokeniz+er, and the tokens tokeniz, tokenizer.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from roberta_plugin.data.tokenizers.additions import additions_of, base_of, composes, special_ids_of, with_additions
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.character_bpe import UNKNOWN, CharacterBpe
from roberta_plugin.data.tokenizers.sentencepiece import WORD_START, SentencePiece

_LONGEST = 1000  # characters of a word; the time for its merges grows with the square
_LIKELIER = 0.01  # nats a character; a new piece wins over its parts, also over a shorter new one and the rest


def extended(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokenizer with tokens for these words, as they follow a space; of byte_level_bpe also without the space.

    Raises:
        ValueError: if a word is too long, is given twice, is one token already, is several words, or has characters
            that the tokenizer does not know.
    """
    for word, count in Counter(words).items():
        if not word.strip() or word != word.strip():
            raise ValueError(f"The new word {word!r} is empty, or has white space around it: correct or remove it.")
        if len(word) > _LONGEST:
            raise ValueError(
                f"The new word {word[:20]!r}... has {len(word):,} characters, and at most {_LONGEST:,} are allowed: "
                "correct or remove it."
            )
        if count > 1:
            raise ValueError(f"The new word {word!r} is given {count} times: give it once.")
    tokens, add_prefix_space = additions_of(tokenizer)
    for word in words:
        if any(token.content == word for token in tokens):
            _refuse_token(word, [word])
    base = base_of(tokenizer)
    if isinstance(base, ByteLevelBpe):
        longer: Tokenizer = _byte_level_bpe(base, words)
    elif isinstance(base, SentencePiece):
        longer = _sentencepiece(base, words)
    else:
        assert isinstance(base, CharacterBpe)
        longer = _character_bpe(base, words)
    further = {"special_ids": special_ids_of(tokenizer), "composes": composes(tokenizer)}
    return with_additions(longer, tokens, add_prefix_space=add_prefix_space, **further)


def _byte_level_bpe(tokenizer: ByteLevelBpe, words: Sequence[str]) -> ByteLevelBpe:
    merges = _Merges(tokenizer.pieces, tokenizer.merges)
    for word in words:
        for form in (f" {word}", word):
            if tokenizer.begins_word(_ids(tokenizer, form)).sum() != 1:
                raise _several(word)
            parts = [tokenizer.pieces[index] for index in tokenizer.encode(form)]
            if form != word:
                _refuse_token(word, parts)
            merges.join(parts)
    return ByteLevelBpe(list(merges.pieces), list(merges.ranks))


def _ids(tokenizer: Tokenizer, text: str) -> Any:
    return tokenizer.encode_lines([text])[0]


class _Merges:
    """Pieces, and merges with their ranks, that grow by those of new words."""

    def __init__(self, pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
        self.pieces = dict.fromkeys(pieces)
        self.ranks = {merge: rank for rank, merge in enumerate(merges)}

    def join(self, parts: list[str]) -> None:
        """Make one token of a word that the old merges leave in these parts.

        Merges of words before it may join some of them; each new merge is after all others, so those words stay whole.
        """
        while len(parts) > 1:
            known = [pair for pair in itertools.pairwise(parts) if pair in self.ranks]
            pair = min(known, key=self.ranks.__getitem__) if known else (parts[0], parts[1])
            self.ranks.setdefault(pair, len(self.ranks))
            self.pieces.setdefault("".join(pair))
            joined: list[str] = []
            for part in parts:  # all occurrences, from left to right
                if joined and (joined[-1], part) == pair:
                    joined[-1] += part
                else:
                    joined.append(part)
            parts = joined


def _sentencepiece(tokenizer: SentencePiece, words: Sequence[str]) -> SentencePiece:
    proto = tokenizer.proto()
    known = set(tokenizer.symbols)
    for word in words:
        parts = tokenizer.encode(word)
        if WORD_START in word or any(character.isspace() for character in word):
            raise _several(word)
        _refuse_token(word, parts)
        if 0 in parts:
            raise _unknown(word)
        piece = "".join(tokenizer.symbols[index] for index in parts)  # normalized, as the text will be
        if piece in known:
            raise ValueError(f"The new word {word!r} is {piece!r} to the tokenizer, as another one is: leave it out.")
        known.add(piece)
        score = sum(proto.pieces[index].score for index in parts) + _LIKELIER * len(piece)
        proto.pieces.add(piece=piece, score=score)
    return SentencePiece(proto.SerializeToString())


def _character_bpe(tokenizer: CharacterBpe, words: Sequence[str]) -> CharacterBpe:
    content = json.loads(tokenizer.bpe)
    vocabulary, pairs = content["model"]["vocab"], content["model"]["merges"]
    merges = _Merges(
        sorted(vocabulary, key=vocabulary.__getitem__),
        [(first, second) for first, second in (pair.split(" ") if isinstance(pair, str) else pair for pair in pairs)],
    )
    for word in words:
        if len(tokenizer.words(word)) != 1:
            raise _several(word)
        parts = [tokenizer.symbols[index] for index in tokenizer.encode(word)]
        if UNKNOWN in parts:
            raise _unknown(word)
        _refuse_token(word, parts)
        merges.join(parts)
    content["model"]["vocab"] = {piece: index for index, piece in enumerate(merges.pieces)}
    content["model"]["merges"] = [list(pair) for pair in merges.ranks]
    return CharacterBpe(json.dumps(content, ensure_ascii=False), language=tokenizer.language)


def _refuse_token(word: str, parts: Sequence[Any]) -> None:
    if len(parts) == 1:
        raise ValueError(f"The new word {word!r} is one token of the tokenizer already: leave it out.")


def _several(word: str) -> ValueError:
    return ValueError(f"The new word {word!r} is several words by the tokenizer's rules: give each of them by itself.")


def _unknown(word: str) -> ValueError:
    return ValueError(
        f"The new word {word!r} has characters that the tokenizer does not know: it needs a new tokenizer."
    )


def text_of(tokenizer: Tokenizer) -> Callable[[int], str]:
    """The text that a tokenizer id stands for, with a space in front where it begins a word."""
    if isinstance(base_of(tokenizer), ByteLevelBpe):
        return lambda index: tokenizer.decode([index])
    return lambda index: tokenizer.symbols[index].replace(WORD_START, " ")
