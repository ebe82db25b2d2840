"""The noun phrases of a text, found by TextBlob's tagger and chunker.

TextBlob (its English part is that of Pattern, De Smedt & Daelemans 2012) has its lexicon and rules inside the
package, so nothing is downloaded. The phrases are chosen as fairseq's examples/roberta/wsc chooses spaCy's:
every chunk, and every run of nouns or of proper nouns in it, without pronouns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from roberta_plugin.extras import require

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
