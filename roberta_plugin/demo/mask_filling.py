"""Held-out sentences with one masked word, and the model's answers.

Stage of `roberta_plugin/demo/__init__.py`. Sentences and words are chosen by hash, independent of the result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

from roberta_plugin.hub import MASK, Filling, RobertaHub

NUM_EXAMPLES = 8
MIN_WORDS, MAX_WORDS = 8, 20
MIN_LETTERS = 3

_SENTENCE = re.compile(r"[A-Z][a-z]*(?: [A-Za-z',-]+)+\.")
_WORD = re.compile(rf"(?<= )[a-z]{{{MIN_LETTERS},}}(?=[ ,.])")


class Cloze(NamedTuple):
    """A sentence with one masked word, and that word."""

    text: str
    word: str


class Answer(NamedTuple):
    """The model's answers for the mask, most probable first, with their probabilities."""

    text: str
    word: str
    words: list[str]
    probabilities: list[float]


def choose_clozes(lines: Iterable[str], is_one_token: set[str], *, count: int = NUM_EXAMPLES) -> list[Cloze]:
    """Mask one word that is a single token in each of `count` sentences; hashes decide which."""
    clozes = []
    for sentence in sorted({line.strip() for line in lines if _is_candidate(line)}, key=_hash):
        spans = [match.span() for match in _WORD.finditer(sentence) if match.group() in is_one_token]
        if spans:
            start, end = min(spans, key=lambda span: _hash(f"{span[0]} {sentence}"))
            clozes.append(Cloze(f"{sentence[:start]}{MASK}{sentence[end:]}", sentence[start:end]))
        if len(clozes) == count:
            break
    return clozes


def fill(hub: RobertaHub, test_file: Path, *, count: int = NUM_EXAMPLES) -> list[Answer]:
    """The model's five best answers for sentences of the held-out file."""
    lines = [line for line in test_file.read_text(encoding="utf-8").splitlines() if _is_candidate(line)]
    lines = [line for line in lines if len(hub.encode(line)) <= hub.max_positions]
    words = {match.group() for line in lines for match in _WORD.finditer(line)}
    one_token = {word for word in words if len(hub.tokenizer.encode(f" {word}")) == 1}
    answers = []
    for cloze in choose_clozes(lines, one_token, count=count):
        fillings = cast(list[Filling], hub.fill_mask(cloze.text, topk=5))  # one mask: one list
        answers.append(
            Answer(
                text=cloze.text,
                word=cloze.word,
                words=[filling.token.strip() for filling in fillings],
                probabilities=[filling.probability for filling in fillings],
            )
        )
    return answers


def _is_candidate(line: str) -> bool:
    return MIN_WORDS <= len(line.split()) <= MAX_WORDS and _SENTENCE.fullmatch(line.strip()) is not None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
