"""Lines of text -> sentences, one a line. Stage of the flow in `roberta_plugin/data/__init__.py`, if asked for.

Lines of a .bin must be sentences where pretraining is on pairs of texts; in most text they are paragraphs.
`roberta binarize --split-sentences` makes each sentence a line, and PREFIX.paragraphs beside the .bin marks
those that began a line of the text: one byte for each, 1 or 0. A blank line stays a line.

The library is syntok: rules, no models to download, pure Python. How it was chosen, in megabytes of text a second on
one busy core of an AMD EPYC, and 30 short texts with abbreviations, quotations and initials
(tests/unit/data/sentences.txt), of which all sentences were found:

    syntok 1.4.4                28 of 30    1.1 MB/s
    pysbd 0.3.4                 28          0.2
    sentence-splitter 1.4       26          1.2
    blingfire 0.1.8             25          6.7    cuts after a quoted question: '"Are you there?" | he asked.'
    nltk 3.10 punkt, untrained  13          4.5    its models need a download

In 120 paragraphs of novels, news and Wikipedia, syntok, sentence-splitter and blingfire disagree on 11 of about 380
ends of sentences; read by hand, they are wrong at 5, 6 and 3 of these. syntok's rules know English, German and Spanish;
other languages that end sentences with . ! ? are split as well. It does not know marks of other scripts, such as the
danda; lines are cut behind those first (Unicode's Sentence_Terminal), but not within quotation marks.

Example: ["He left. She stayed.", "", "Why?"] -> ["He left.", "She stayed.", "", "Why?"] and [1, 0, 1, 1].
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import regex  # type: ignore[import-untyped]
from numpy.typing import NDArray

from roberta_plugin.data.white_space import strip
from roberta_plugin.extras import require

_LONGEST = 20_000  # characters given to the library at a time: its time grows faster than the text
_CLOSING = r"\p{Pe}\p{Pf}\"'"
_OTHER_END = regex.compile(  # a fullwidth stop may be a decimal point
    rf"(?V1)[[\p{{STerm}}]--[.!?\u2024]]++(?:[{_CLOSING}]++(?=\s)|(?![{_CLOSING}])(?!(?<=\uff0e)\p{{Nd}}))"
)


def paragraphs_path(prefix: str | os.PathLike[str]) -> str:
    """The file beside PREFIX.bin that marks the lines that began a line of the text."""
    return f"{os.fspath(prefix)}.paragraphs"


def split_lines(lines: Sequence[str]) -> tuple[list[str], NDArray[np.uint8]]:
    """The sentences of all lines (I,), and whether each begins a line (I,)."""
    sentences: list[str] = []
    begins: list[int] = []
    for line in lines:
        line_sentences = split_line(line) or [""]
        sentences += line_sentences
        begins += [1, *[0] * (len(line_sentences) - 1)]
    return sentences, np.array(begins, dtype=np.uint8)


def split_line(line: str) -> list[str]:
    """The sentences of one line; joined with blanks they are the line, up to the white space between them."""
    if line.isascii():
        return _by_library(line)
    bounds = [0, *(match.end() for match in _OTHER_END.finditer(line)), len(line)]
    return [sentence for start, stop in pairwise(bounds) for sentence in _by_library(line[start:stop])]


def _by_library(line: str) -> list[str]:
    sentences = []
    while line:
        piece, line = _bite(line)
        parts = _split(piece)
        if line and len(parts) > 1:  # the last one may continue
            line = parts.pop() + line
        sentences += parts
    return sentences


def _bite(line: str) -> tuple[str, str]:
    """The beginning of a line, cut at white space if the line is very long, and the rest."""
    if len(line) <= _LONGEST:
        return line, ""
    cut = line.rfind(" ", 1, _LONGEST)
    cut = _LONGEST if cut < 0 else cut
    return line[:cut], line[cut:]


def _split(text: str) -> list[str]:
    tokenizer, segmenter = _library()
    # By position in the text: the library spells some tokens otherwise, such as "n't".
    starts = [sentence[0].offset for sentence in segmenter.split(tokenizer.tokenize(text)) if sentence]
    bounds = [0, *starts[1:], len(text)]
    pieces = (strip(text[start:stop]) for start, stop in pairwise(bounds))
    return [piece for piece in pieces if piece]


@cache
def _library() -> tuple[Any, Any]:
    require("syntok", extra="sentences", purpose="--split-sentences")
    from syntok import segmenter
    from syntok.tokenizer import Tokenizer

    return Tokenizer(), segmenter
