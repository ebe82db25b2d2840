"""Texts in scripts that put no spaces between words, whose answers are compared by characters.

The definition is that of MLQA's official script for Chinese, mixed segmentation: small letters, no punctuation of any
script, each character of such a script by itself, and other letters and digits in words. CMRC 2018's script has the
same parts, but counts only the longest piece that two answers share. MLQA cuts only Han into characters. Here the other
scripts without spaces are cut, too, and in F1 also Korean, whose particles are attached to the words, as in KorQuAD.

Example: segments("1998\\u5e74 the Olympics") -> ["1998", "\\u5e74", "the", "olympics"].
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache

_WITHOUT_SPACES = (
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3031-\u3035\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff\uff66-\uff9f"  # kana, bopomofo
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0eba\u0ebc-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u1049\u1050-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u0f00\u0f40-\u0f84\u0f88-\u0fbc"  # Tibetan
)
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"
_CHARACTER = re.compile(f"[{_WITHOUT_SPACES}{_HANGUL}]")
_PIECE = re.compile(f"[{_WITHOUT_SPACES}]|[^{_WITHOUT_SPACES}\\s]+")
_PIECE_OF_F1 = re.compile(f"[{_WITHOUT_SPACES}{_HANGUL}]|[^{_WITHOUT_SPACES}{_HANGUL}\\s]+")


def has_characters(text: str) -> bool:
    """True if a text has a character that counts by itself."""
    return not text.isascii() and _CHARACTER.search(text) is not None


def is_of_characters(text: str) -> bool:
    """True if most letters of a text count by themselves."""
    if text.isascii():
        return False
    return 2 * len(_CHARACTER.findall(text)) > sum(map(str.isalpha, text))


def segments(text: str) -> list[str]:
    """The characters and words that F1 compares, as described in the docstring of the file."""
    return _PIECE_OF_F1.findall(_plain(text))


def segments_of_match(text: str) -> list[str]:
    """The characters and words that an exact match compares: as in `segments`, but Korean by words, so spaces count."""
    return _PIECE.findall(_plain(text))


def _plain(text: str) -> str:
    return text.lower().translate(_no_punctuation())


@cache
def _no_punctuation() -> dict[int, None]:
    return dict.fromkeys([*map(ord, string.punctuation), *_punctuation()])


def _punctuation() -> Iterator[int]:
    return (code for code in range(sys.maxunicode) if unicodedata.category(chr(code)).startswith("P"))
