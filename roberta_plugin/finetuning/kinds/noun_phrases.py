"""The noun phrases of a text, found by TextBlob's tagger and chunker.

TextBlob (its English part is that of Pattern, De Smedt & Daelemans 2012) has its lexicon and rules inside the
package, so nothing is downloaded. The phrases are chosen as fairseq's examples/roberta/wsc chooses spaCy's:
every chunk, and every run of nouns or of proper nouns in it, without pronouns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from roberta_plugin.extras import require

PRONOUNS = frozenset(
    {"he", "she", "it", "they", "him", "her", "them", "his", "hers", "its", "their", "theirs"}
    | {"himself", "herself", "itself", "themselves"}
)
DETERMINERS = frozenset(
    {"the", "a", "an", "this", "that", "these", "those", "some", "any", "every", "each", "no", "another"}
    | {"my", "your", "his", "her", "its", "our", "their"}
)
WORD = re.compile(r"\w+(?:[.,-]\w+)*(?:['\u2019](?!s\b)\w+)?|['\u2019]s\b|['\u2019](?=\s|$)")
POSSESSIVE = ("'s", "'")

_TOKEN = re.compile(r"(?:Mr|Mrs|Ms|Dr|St)\.|\w+(?:[.,'\u2019-](?!s\b)\w+)*|['\u2019]s\b|[^\w\s]")
_END_OF_SENTENCE = (".", "!", "?", ";")
_NOUNS = ("NN", "NNP")


def noun_phrases(text: str) -> list[str]:
    """Noun phrases in the order of their starts, as the text writes them, without duplicates.

    Example: "The drain is clogged with hair." -> ["The drain", "drain", "hair"].
    """
    tokens = list(_TOKEN.finditer(text))
    spans: set[tuple[int, int]] = set()
    tags = list(_tags([token.group() for token in tokens]))
    for start, end in _chunks(tags):
        if all(tag != "PRP" for tag, _ in tags[start:end]):
            spans.add((start, end))
        spans.update(_noun_runs(tags, start, end))
    phrases = (text[tokens[start].start() : tokens[end - 1].end()] for start, end in sorted(spans))
    return list(dict.fromkeys(phrases))


def _tags(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Part of speech and chunk tag of each token."""
    require("textblob", extra="noun-phrases", purpose="Finding noun phrases (WNLI, WSC, WinoGrande)")
    from textblob.en import parse

    sentences: list[list[str]] = [[]]
    for token in tokens:
        sentences[-1].append(token)
        if token in _END_OF_SENTENCE:
            sentences.append([])
    lines = "\n".join(" ".join(sentence) for sentence in sentences if sentence)
    for sentence in parse(lines, tokenize=False, collapse=False) if lines else ():
        for _, tag, chunk, *_ in sentence:
            yield tag, chunk


def _chunks(tags: list[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Spans of the chunks that are noun phrases and have a noun."""
    start = None
    for index, (_, chunk) in enumerate([*tags, ("", "O")]):
        if start is not None and chunk != "I-NP":
            if any(tag.startswith(_NOUNS) for tag, _ in tags[start:index]):
                yield start, index
            start = None
        if chunk == "B-NP" or (chunk == "I-NP" and start is None):
            start = index


def _noun_runs(tags: list[tuple[str, str]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of nouns, or of proper nouns, one after the other."""
    begin, before = start, ""
    for index in range(start, end + 1):
        tag = tags[index][0] if index < end else ""
        kind = "NNP" if tag.startswith("NNP") else "NN" if tag.startswith("NN") else ""
        if kind != before:
            if before:
                yield begin, index
            begin, before = index, kind


def content_words(phrase: str) -> list[str]:
    """Words of a phrase in lower case, without leading determiners and possessive ending.

    Example: "The old dog's" -> ["old", "dog"].
    """
    return without_determiners(plain_words(list(WORD.finditer(phrase))))


def rivals_of(phrase: str | None, candidates: Iterable[str]) -> list[str]:
    """The candidates that may compete with a phrase, without duplicates; all of them if there is no phrase.

    A rival is neither a part of the phrase nor the phrase of it, and not a mere pronoun or determiner.

    Example: rivals_of("The old dog", ["dog", "the old dog's tail", "it", "a cat"]) -> ["a cat"].
    """
    asked = content_words(phrase) if phrase else []
    rivals: dict[str, None] = {}
    for candidate in candidates:
        words = content_words(candidate)
        if not words or all(word in PRONOUNS for word in words):
            continue
        if not asked or not (contains(words, asked) or contains(asked, words)):
            rivals[candidate] = None
    return list(rivals)


def contains(words: Sequence[str], part: Sequence[str]) -> bool:
    """Whether `part` is a contiguous part of `words`."""
    return any(words[start : start + len(part)] == part for start in range(len(words) - len(part) + 1))


def plain_words(words: list[re.Match[str]]) -> list[str]:
    """Words in lower case, with plain apostrophes."""
    return [word.group().lower().replace("\u2019", "'") for word in words]


def without_determiners(words: list[str]) -> list[str]:
    """Plain words without leading determiners and possessive ending."""
    while words and words[0] in DETERMINERS:
        words = words[1:]
    return words[:-1] if words and words[-1] in POSSESSIVE else words
