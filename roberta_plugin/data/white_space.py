"""White space as Unicode has it (the property White_Space), wherever a model's ids follow from it.

So have it Hugging Face's tokenizers (`Strip`, `lstrip`, `\\s`). Python's `str.strip`, `str.split` and `re` also take
U+001C to U+001F for white space: by those, a text would have other ids here than in an exported model. The lines of a
text for pretraining alone are stripped by Python, as fairseq does it (`text_inputs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

WHITE_SPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)
_RUN = re.compile(f"[{WHITE_SPACE}]+")
_NO_WHITE_SPACE = re.compile(f"[^{WHITE_SPACE}]+")
_ONLY_PYTHONS = re.compile("[\x1c-\x1f]")


def strip(text: str) -> str:
    """The text without white space at its ends."""
    return text.strip(WHITE_SPACE)


def rstrip(text: str) -> str:
    """The text without white space at its end."""
    return text.rstrip(WHITE_SPACE)


def is_blank(text: str) -> bool:
    """True if a text is empty or holds white space alone."""
    return not strip(text)


def one_line(text: str) -> str:
    """The text with every run of white space replaced by one space, and none at its ends.

    Example: " a\\n\\tb " -> "a b".
    """
    if _ONLY_PYTHONS.search(text) is None:
        return " ".join(text.split())  # several times as fast
    return _RUN.sub(" ", strip(text))


def spans_between(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each part of the text without white space.

    Example: " a  bc" -> (1, 2), (4, 6).
    """
    return (found.span() for found in _NO_WHITE_SPACE.finditer(text))
