"""Words of texts in all scripts, whole and at their places."""

import unicodedata
from pathlib import Path

import pytest
import regex

from roberta_plugin.finetuning.layouts.words import split_words, word_spans

SCRIPTS = [line.split("|") for line in (Path(__file__).parent / "scripts.txt").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("line", SCRIPTS, ids=lambda line: line[0])
def test_words_of_all_scripts_are_whole(line, form):
    """No mark, joiner or variation selector is cut off; scripts without spaces have words of one character each."""
    expected = unicodedata.normalize(form, line[1]).split(" ")
    text = ("" if len(line) == 3 else " ").join(expected)
    assert split_words(text) == expected
    assert [text[slice(*span)] for span in word_spans(text, expected)] == expected
    characters = {match.start() for match in regex.finditer(r"\X", text)}
    assert {start for start, _ in word_spans(text, expected)} <= characters


def test_marks_that_nobody_sees_are_no_words():
    """Byte order marks, marks of direction, and the mark between words of Thai and Khmer."""
    assert split_words("\ufeffHello \u200eab\u200ecd\u200f") == ["\ufeffHello", "\u200eab\u200ecd\u200f"]
    assert split_words("one\u200btwo \u0e01\u200b\u0e02") == ["one\u200b", "two", "\u0e01\u200b", "\u0e02"]
