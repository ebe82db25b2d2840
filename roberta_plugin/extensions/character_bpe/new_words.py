"""New words for character-level BPE: one token each (`conversion/vocabulary_change.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from roberta_plugin.conversion.vocabulary_change import Merges, refuse_token, unknown_word
from roberta_plugin.data.tokenizers.base import UNKNOWN
from roberta_plugin.extensions.character_bpe.tokenizer import WORD_START, CharacterBpe


def is_several_words(tokenizer: CharacterBpe, word: str) -> bool:
    """True if Moses' rules cut a new word, which then becomes an added token."""
    return WORD_START in word or len(tokenizer.words(word)) != 1


def add_words(tokenizer: CharacterBpe, words: Sequence[str]) -> CharacterBpe:
    """The tokenizer with new words."""
    content = json.loads(tokenizer.bpe)
    vocabulary, pairs = content["model"]["vocab"], content["model"]["merges"]
    merges = Merges(
        sorted(vocabulary, key=vocabulary.__getitem__),
        [(first, second) for first, second in (pair.split(" ") if isinstance(pair, str) else pair for pair in pairs)],
    )
    for word in words:
        parts = [tokenizer.symbols[index] for index in tokenizer.encode(word)]
        if UNKNOWN in parts:
            raise unknown_word(word)
        refuse_token(word, parts)
        merges.join(parts)
    content["model"]["vocab"] = {piece: index for index, piece in enumerate(merges.pieces)}
    content["model"]["merges"] = [list(pair) for pair in merges.ranks]
    return CharacterBpe(json.dumps(content, ensure_ascii=False), language=tokenizer.language)
