"""Words that ROUGE compares, in all scripts."""

import unicodedata

import pytest

from roberta_plugin.extensions.summaries.documents import ROUGE, rouge, words
from tests.unit.finetuning.layouts.test_words import SCRIPTS


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("line", SCRIPTS, ids=lambda line: line[0])
def test_words_do_not_depend_on_the_normal_form(line, form):
    expected = unicodedata.normalize(form, line[1]).split(" ")
    text = ("" if len(line) == 3 else " ").join(expected)
    letters = [word for word in expected if unicodedata.category(word[0])[0] in "LN"]
    if "-" not in text and "'" not in text and "3,5" not in text and "\u05f4" not in text and "\u055e" not in text:
        in_one_form = [unicodedata.normalize("NFC", word.lower()) for word in letters]
        assert words(text) == in_one_form
        assert rouge([text], [unicodedata.normalize("NFC", text)]) == dict.fromkeys(ROUGE, float(bool(letters)))
