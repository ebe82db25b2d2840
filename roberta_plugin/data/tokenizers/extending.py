"""A tokenizer with further words: each becomes one token, and ids of the old tokens stay.

byte_level_bpe and character_bpe get merges of the word's pieces, from left to right and after all others, so that the
joins on the way become tokens too; sentencepiece gets the word as a piece that is a little likelier than its parts.
Text without the words keeps its tokens, except where a word has the same pieces as the beginning of a new one.

Example: "tokenizer" in the pieces token|iz|er: the merges token+iz and tokeniz+er, and the tokens tokeniz, tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.character_bpe import UNKNOWN, CharacterBpe
from roberta_plugin.data.tokenizers.sentencepiece import WORD_START, SentencePiece

_LIKELIER = 0.1  # nats; a piece of its own wins over its parts


def extended(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokenizer with tokens for these words, as they follow a space; of byte_level_bpe also without the space.

    Raises:
        ValueError: if a word is given twice, is one token already, is several words, or has characters that the
            tokenizer does not know.
    """
    for number, word in enumerate(words):
        if not word.strip() or word != word.strip():
            raise ValueError(f"The new word {word!r} is empty, or has white space around it: correct or remove it.")
        if word in words[:number]:
            raise ValueError(f"The new word {word!r} is given twice: give it once.")
    if isinstance(tokenizer, ByteLevelBpe):
        return _byte_level_bpe(tokenizer, words)
    if isinstance(tokenizer, SentencePiece):
        return _sentencepiece(tokenizer, words)
    assert isinstance(tokenizer, CharacterBpe)
    return _character_bpe(tokenizer, words)


def _byte_level_bpe(tokenizer: ByteLevelBpe, words: Sequence[str]) -> ByteLevelBpe:
    pieces, merges = list(tokenizer.pieces), list(tokenizer.merges)
    for word in words:
        for form in (f" {word}", word):
            if tokenizer.begins_word(_ids(tokenizer, form)).sum() != 1:
                raise _several(word)
            parts = [tokenizer.pieces[index] for index in tokenizer.encode(form)]
            if form != word:
                _refuse_token(word, parts)
            _join(parts, pieces, merges)
    return ByteLevelBpe(pieces, merges)


def _ids(tokenizer: Tokenizer, text: str) -> Any:
    return tokenizer.encode_lines([text])[0]


def _join(parts: Sequence[str], pieces: list[str], merges: list[tuple[str, str]]) -> None:
    known, joined = set(pieces), set(merges)
    whole = parts[0]
    for part in parts[1:]:
        if (whole, part) not in joined:
            merges.append((whole, part))
        whole += part
        if whole not in known:
            pieces.append(whole)


def _sentencepiece(tokenizer: SentencePiece, words: Sequence[str]) -> SentencePiece:
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)
    for word in words:
        parts = tokenizer.encode(word)
        if WORD_START in word or any(character.isspace() for character in word):
            raise _several(word)
        _refuse_token(word, parts)
        if 0 in parts:
            raise _unknown(word)
        score = sum(proto.pieces[index].score for index in parts) + _LIKELIER
        proto.pieces.add(piece=WORD_START + word, score=score)
    return SentencePiece(proto.SerializeToString())


def _character_bpe(tokenizer: CharacterBpe, words: Sequence[str]) -> CharacterBpe:
    content = json.loads(tokenizer.bpe)
    vocabulary, pairs = content["model"]["vocab"], content["model"]["merges"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [
        (first, second) for first, second in (pair.split(" ") if isinstance(pair, str) else pair for pair in pairs)
    ]
    for word in words:
        if len(tokenizer.words(word)) != 1:
            raise _several(word)
        parts = [tokenizer.symbols[index] for index in tokenizer.encode(word)]
        if UNKNOWN in parts:
            raise _unknown(word)
        _refuse_token(word, parts)
        _join(parts, pieces, merges)
    content["model"]["vocab"] = {piece: index for index, piece in enumerate(pieces)}
    content["model"]["merges"] = [list(pair) for pair in merges]
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
    if isinstance(tokenizer, ByteLevelBpe):
        return lambda index: tokenizer.decode([index])
    return lambda index: tokenizer.symbols[index].replace(WORD_START, " ")
