"""A text -> its words, and words -> their places in the text."""

from __future__ import annotations

from collections.abc import Sequence

import regex  # type: ignore[import-untyped]

# Characters for brackets of `regex`, version 1.
MARKS = r"\p{M}\u00ad\u200c\u200d\u200e\u200f\u2060\ufeff"  # part of the character before them
_UNSEEN = r"[\u200b\u200e\u200f\ufeff]"  # U+200B ends a word; what a text begins with belongs to its first word
LETTERS = rf"[\w\p{{N}}\p{{GCB=Prepend}}]--[{MARKS}]"  # regex's \w lacks fractions and superscripts, re's has no marks
UNSPACED = r"\p{Han}\p{Hiragana}\p{LB=Complex_Context}"  # scripts without spaces; the last are Thai, Khmer ...
_RUN = f"(?:[[{LETTERS}]--[{UNSPACED}]][{MARKS}]*)+"
_JOINED = r"'\u2019.,\u00b7\u05f3\u05f4\u055b\u055c\u055e\u066b\u066c\u2010\u2011-"  # Hebrew's and Armenian's, too
_WORD = regex.compile(rf"(?V1){_UNSEEN}*(?:{_RUN}(?:[{_JOINED}]{_RUN})*|(?![\s\x1c-\x1f])\X[{MARKS}]*){_UNSEEN}*")


def split_words(text: str) -> list[str]:
    """Words with inner apostrophes, hyphens and decimal points; any other character is a word by itself.

    Characters are what a reader sees as one (grapheme clusters of Unicode's UAX 29): a letter with its marks, a whole
    emoji. In scripts without spaces between words, each character is a word, as in UAX 29 without a dictionary.

    Example: 'I said, "hello RoBERTa."' -> ['I', 'said', ',', '"', 'hello', 'RoBERTa', '.', '"'].
    """
    words: list[str] = _WORD.findall(text)
    return words


def word_spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Characters of each word, in order."""
    spans, position = [], 0
    for word in words:
        start = text.find(word, position) if word else -1
        if start < 0 or text[position:start].strip():
            rest = text[position : position + 40]
            raise ValueError(
                f"The word {word!r} does not come next in the text, which continues with {rest!r}: give the words of "
                "the text in their order, and leave out only white space."
            )
        position = start + len(word)
        spans.append((start, position))
    return spans
