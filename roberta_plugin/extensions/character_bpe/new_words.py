"""What adding words to character-level BPE needs: Moses' rules, its merges, and a tokenizer of more of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from roberta_plugin.extensions.character_bpe.tokenizer import WORD_START, CharacterBpe


def is_several_words(tokenizer: CharacterBpe, word: str) -> bool:
    """True if Moses' rules cut a new word."""
    return WORD_START in word or len(tokenizer.words(word)) != 1


def read_merges(tokenizer: CharacterBpe) -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces in the order of their ids, and merges, best first."""
    pairs = json.loads(tokenizer.bpe)["model"]["merges"]
    return tokenizer.symbols, [
        (first, second) for first, second in (pair.split(" ") if isinstance(pair, str) else pair for pair in pairs)
    ]


def with_merges(tokenizer: CharacterBpe, pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> CharacterBpe:
    """The tokenizer with other pieces and merges."""
    content = json.loads(tokenizer.bpe)
    content["model"]["vocab"] = {piece: index for index, piece in enumerate(pieces)}
    content["model"]["merges"] = [list(pair) for pair in merges]
    return CharacterBpe(json.dumps(content, ensure_ascii=False), language=tokenizer.language)
