"""New words for a tokenizer: they become one token each, and ids of the old tokens stay.

BPE gets merges of the word's pieces, from left to right and after all other merges, so the pieces on the way become
tokens, too. Sentencepiece gets the word as a piece that is a little likelier than its parts. Other text keeps its
tokens, except where the first pieces of a new word occur side by side. Markers, such as [E1], <user> or @USER, and
words that the tokenizer's rules split into several become added tokens instead, which are found in a text before those
rules apply.

Example: "tokenizer" in the pieces token|iz|er: the merges token+iz and tokeniz+er, and the tokens tokeniz, tokenizer.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from roberta_plugin.data.tokenizers.additions import (
    AddedToken,
    additions_of,
    base_of,
    composes,
    pieces_of,
    special_ids_of,
    with_additions,
)
from roberta_plugin.data.tokenizers.base import UNKNOWN, Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import WORD_START, SentencePiece
from roberta_plugin.data.tokenizers.whitespace import Whitespace
from roberta_plugin.data.vocabulary import MASK, SPECIALS
from roberta_plugin.data.white_space import is_blank, one_line, strip
from roberta_plugin.registry import TOKENIZERS

_LONGEST = 1000  # characters of a word; the time for its merges grows with the square
_LIKELIER = 0.01  # nats per character, so that a new piece wins over its parts, shorter new pieces among them


def extended(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokenizer with a token for each of these words after a space; for byte_level_bpe also without the space.

    Markers, and words that the tokenizer's rules split into several, become added tokens.

    Raises:
        ValueError: if a word is too long, is given twice, is one token already, has white space in it, or has
            characters that the tokenizer does not know.
    """
    for word, count in Counter(words).items():
        if is_blank(word) or word != strip(word):
            raise ValueError(f"The new word {word!r} is empty, or has white space around it: correct or remove it.")
        if " " in one_line(word):
            raise ValueError(
                f"The new word {word!r} is several words, by its white space: give each of them by itself."
            )
        if len(word) > _LONGEST:
            raise ValueError(
                f"The new word {word[:20]!r}... has {len(word):,} characters, and at most {_LONGEST:,} are allowed: "
                "correct or remove it."
            )
        if count > 1:
            raise ValueError(f"The new word {word!r} is given {count} times: give it once.")
        if word in (*SPECIALS, MASK):
            raise ValueError(f"The new word {word!r} is a special symbol of every model: leave it out.")
    tokens, add_prefix_space = additions_of(tokenizer)
    for word in words:
        if any(token.content == word for token in tokens):
            refuse_token(word, [word])
    base = base_of(tokenizer)
    added = [_added_token(base, word) for word in words if _is_added(base, word)]
    contents = {token.content for token in added}
    extend = _EXTENDED.get(base.name, _bpe_of_extension)
    longer = extend(base, [word for word in words if word not in contents])
    further = {"special_ids": special_ids_of(tokenizer), "composes": composes(tokenizer)}
    return with_additions(longer, [*tokens, *added], add_prefix_space=add_prefix_space, **further)


def _is_added(tokenizer: Tokenizer, word: str) -> bool:
    """True if a new word becomes an added token, because the tokenizer's rules split it into several words.

    SentencePiece has no such rules, but its pieces would find a marker only after a space.
    """
    if isinstance(tokenizer, ByteLevelBpe):
        return any(tokenizer.begins_word(_ids(tokenizer, form)).sum() != 1 for form in (f" {word}", word))
    if isinstance(tokenizer, Whitespace):
        return False
    if not isinstance(tokenizer, SentencePiece):
        return bool(_rules_of(tokenizer).is_several_words(tokenizer, word))
    return WORD_START in word or _is_punctuation(word[0]) or _is_punctuation(word[-1])


def _rules_of(tokenizer: Tokenizer) -> Any:
    """The module in which an extension describes its BPE (`registry.TokenizerEntry.new_words`)."""
    if not TOKENIZERS[tokenizer.name].new_words:
        raise ValueError(f"A tokenizer of the kind {tokenizer.name} takes no new words: give a new one by --tokenizer.")
    return TOKENIZERS.load(tokenizer.name, "new_words")


def _added_token(tokenizer: Tokenizer, word: str) -> AddedToken:
    """The added token as transformers makes it, except that a word of letters is not found within a longer one."""
    parts = [tokenizer.symbols[index] for index in tokenizer.encode(word)]
    if word in pieces_of(tokenizer) or UNKNOWN not in parts:
        refuse_token(word, [word] if word in pieces_of(tokenizer) else parts)
    return AddedToken(word, single_word=word[0].isalnum() and word[-1].isalnum())


def _is_punctuation(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "P" or category in ("Sm", "Sc", "Sk")


def _byte_level_bpe(tokenizer: ByteLevelBpe, words: Sequence[str]) -> ByteLevelBpe:
    merges = Merges(tokenizer.pieces, tokenizer.merges)
    for word in words:
        for form in (f" {word}", word):
            parts = [tokenizer.pieces[index] for index in tokenizer.encode(form)]
            if form != word:
                refuse_token(word, parts)
            merges.join(parts)
    return ByteLevelBpe(list(merges.pieces), list(merges.ranks))


def _bpe_of_extension(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    rules = _rules_of(tokenizer)
    merges = Merges(*rules.read_merges(tokenizer))
    for word in words:
        parts = [tokenizer.symbols[index] for index in tokenizer.encode(word)]
        if UNKNOWN in parts:
            raise unknown_word(word)
        refuse_token(word, parts)
        merges.join(parts)
    longer: Tokenizer = rules.with_merges(tokenizer, list(merges.pieces), list(merges.ranks))
    return longer


def _ids(tokenizer: Tokenizer, text: str) -> Any:
    return tokenizer.encode_lines([text])[0]


class Merges:
    """Pieces, and merges with their ranks; `join` adds those of a new word."""

    def __init__(self, pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
        self.pieces = dict.fromkeys(pieces)
        self.ranks = {merge: rank for rank, merge in enumerate(merges)}

    def join(self, parts: list[str]) -> None:
        """Make one token of a word that the old merges leave in these parts.

        Merges of earlier new words may join some of the parts. Each new merge is after all others, so the earlier words
        stay whole.
        """
        while len(parts) > 1:
            merged_pairs = [pair for pair in itertools.pairwise(parts) if pair in self.ranks]
            pair = min(merged_pairs, key=self.ranks.__getitem__) if merged_pairs else (parts[0], parts[1])
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
    pieces_so_far = set(tokenizer.symbols)
    for word in words:
        parts = tokenizer.encode(word)
        refuse_token(word, parts)
        if 0 in parts:
            raise unknown_word(word)
        piece = "".join(tokenizer.symbols[index] for index in parts)  # normalized, as the text will be
        if piece in pieces_so_far:
            raise ValueError(f"The new word {word!r} is {piece!r} to the tokenizer, as another one is: leave it out.")
        pieces_so_far.add(piece)
        score = sum(proto.pieces[index].score for index in parts) + _LIKELIER * len(piece)
        proto.pieces.add(piece=piece, score=score)
    return SentencePiece(proto.SerializeToString())


def _whitespace(tokenizer: Whitespace, words: Sequence[str]) -> Whitespace:
    for word in words:
        if word in tokenizer.words:
            refuse_token(word, [word])
    return Whitespace([*tokenizer.words, *words])


_EXTENDED: dict[str, Callable[[Any, Sequence[str]], Tokenizer]] = {
    ByteLevelBpe.name: _byte_level_bpe,
    SentencePiece.name: _sentencepiece,
    Whitespace.name: _whitespace,
}


def refuse_token(word: str, parts: Sequence[Any]) -> None:
    """Refuse a word that is one token."""
    if len(parts) == 1:
        raise ValueError(f"The new word {word!r} is one token of the tokenizer already: leave it out.")


def unknown_word(word: str) -> ValueError:
    """The error about a word of unknown characters."""
    return ValueError(
        f"The new word {word!r} has characters that the tokenizer does not know: it needs a new tokenizer."
    )
