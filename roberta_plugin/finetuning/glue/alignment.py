"""Which pronoun of a text does a hypothesis replace, and by which phrase?

    The drain is clogged with hair. It has to be cleaned.   +   The hair has to be cleaned.   ->   "It", "The hair"

WNLI's hypotheses are parts of their texts with one pronoun replaced, but not always to the letter: words are changed
with the grammar ("they were" -> "Yakutsk was"), left out, put in front, or misspelt. So the alignment is the one with
the fewest edits, by dynamic programming on both sides of every pronoun.

Shapes: P words of the text, H words of the hypothesis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PRONOUNS = frozenset(
    {"he", "she", "it", "they", "him", "her", "them", "his", "hers", "its", "their", "theirs"}
    | {"himself", "herself", "itself", "themselves"}
)
DETERMINERS = frozenset(
    {"the", "a", "an", "this", "that", "these", "those", "some", "any", "every", "each", "no", "another"}
    | {"my", "your", "his", "her", "its", "our", "their"}
)
_WORD = re.compile(r"\w+(?:[.,-]\w+)*(?:['\u2019](?!s\b)\w+)?|['\u2019]s\b|['\u2019](?=\s|$)")
_POSSESSIVE = ("'s", "'")
# What an edit costs: a word more or less or another one; another word with the same beginning, such as a misspelling.
_EDIT, _VARIANT, _SAME_BEGINNING = 1.0, 0.5, 4
# What a phrase costs that is not in the text as it stands: by word, for a word that the text lacks, for a pronoun.
_LOOSE_WORD, _NEW_WORD, _PRONOUN_WITHIN = 0.25, 0.4, 1.5
# What it costs that the hypothesis ends with the phrase although the clause continues after the pronoun.
_CUT_OFF = 0.5
_GOES_ON = re.compile(r"\s*\w")


@dataclass(frozen=True, slots=True)
class Alignment:
    """Where the pronoun is in the text, and the phrase that replaces it in the hypothesis."""

    start: int  # characters of the text
    end: int
    phrase: str  # as the hypothesis writes it
    cost: float  # 0 where everything agrees to the letter


def align(text: str, hypothesis: str) -> Alignment | None:
    """Find pronoun and phrase; None if the hypothesis does not match the words around any pronoun."""
    in_text, in_hypothesis = list(_WORD.finditer(text)), list(_WORD.finditer(hypothesis))
    words, others = _plain(in_text), _plain(in_hypothesis)
    left = _edits(others, words)  # [a, p]: others[:a] against the words that end before p
    right = _edits(others[::-1], words[::-1])[::-1, ::-1]  # [b, p]: others[b:] against the words from p on
    best: tuple[float, int, int, int] | None = None  # cost, length of the phrase, where it begins, the pronoun
    for pronoun, word in enumerate(words):
        if word not in PRONOUNS:
            continue
        cut_off = _CUT_OFF if _GOES_ON.match(text, in_text[pronoun].end()) else 0.0
        for begin in range(len(others)):
            for end in range(begin + 1, len(others) + 1):
                around = begin + len(others) - end
                edits = left[begin, pronoun] + right[end, pronoun + 1]
                phrase = others[begin:end]
                if edits < around and phrase != [word]:
                    cost = float(edits) + _phrase_cost(phrase, words) + (cut_off if end == len(others) else 0.0)
                    best = min(best or (np.inf, 0, 0, 0), (cost, end - begin, begin, pronoun))
    if best is None or best[0] == np.inf:
        return None
    cost, length, begin, pronoun = best
    span = in_hypothesis[begin].start(), in_hypothesis[begin + length - 1].end()
    return Alignment(in_text[pronoun].start(), in_text[pronoun].end(), hypothesis[slice(*span)], cost)


def content_words(phrase: str) -> list[str]:
    """Words of a phrase in lower case, without leading determiners and a possessive ending.

    Example: "The old dog's" -> ["old", "dog"].
    """
    return _content(_plain(list(_WORD.finditer(phrase))))


def contains(words: Sequence[str], part: Sequence[str]) -> bool:
    """Whether the words of `part` follow each other in `words`."""
    return any(words[start : start + len(part)] == part for start in range(len(words) - len(part) + 1))


def _plain(words: list[re.Match[str]]) -> list[str]:
    return [word.group().lower().replace("\u2019", "'") for word in words]


def _content(words: list[str]) -> list[str]:
    while words and words[0] in DETERMINERS:
        words = words[1:]
    return words[:-1] if words and words[-1] in _POSSESSIVE else words


def _edits(others: Sequence[str], words: Sequence[str]) -> NDArray[np.float64]:
    """Edits from each others[:a] to the stretch of `words`, ending before p, that fits best (H + 1, P + 1)."""
    table = np.zeros((len(others) + 1, len(words) + 1))
    table[:, 0] = np.arange(len(others) + 1) * _EDIT
    for a, other in enumerate(others):
        for p, word in enumerate(words):
            is_variant = other[:_SAME_BEGINNING] == word[:_SAME_BEGINNING]
            change = 0.0 if other == word else _VARIANT if is_variant else _EDIT
            table[a + 1, p + 1] = min(table[a, p] + change, table[a, p + 1] + _EDIT, table[a + 1, p] + _EDIT)
    return table


def _phrase_cost(phrase: list[str], words: list[str]) -> float:
    content = _content(phrase)
    if not content or all(word in PRONOUNS for word in content):
        return np.inf
    if contains(words, content):
        return 0.0
    return sum(
        _LOOSE_WORD + _NEW_WORD * (word not in words) + _PRONOUN_WITHIN * (word in PRONOUNS)
        for word in content
        if word not in _POSSESSIVE
    )
