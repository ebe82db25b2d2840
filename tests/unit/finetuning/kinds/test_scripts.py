"""Answers in scripts without spaces, compared by characters."""

import pytest

from roberta_plugin.finetuning.kinds.answer_scores import answer_score
from roberta_plugin.finetuning.kinds.scripts import has_characters, is_of_characters, segments, segments_of_match

ANSWERS = {
    "Chinese": ("\u5317\u4eac\u5927\u5b66", "\u5728\u5317\u4eac\u5927\u5b66"),
    "Japanese": ("\u6771\u4eac\u30bf\u30ef\u30fc", "\u6771\u4eac\u306e\u30bf\u30ef\u30fc"),
    "Thai": ("\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e", "\u0e17\u0e35\u0e48\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e"),
    "Lao": ("\u0ea7\u0ebd\u0e87\u0e88\u0eb1\u0e99", "\u0e97\u0ebd\u0e87\u0e88\u0eb1\u0e99"),
    "Khmer": ("\u1797\u17d2\u1793\u17c6\u1796\u17c1\u1789", "\u1793\u17c5\u1797\u17d2\u1793\u17c6\u1796\u17c1\u1789"),
    "Burmese": ("\u101b\u1014\u103a\u1000\u102f\u1014\u103a", "\u1019\u103c\u102d\u102f\u101b\u1014\u103a\u1000\u102f\u1014\u103a"),
    "Korean": ("\uc11c\uc6b8", "\uc11c\uc6b8\uc5d0\uc11c"),
}  # fmt: skip


@pytest.mark.parametrize("language", ANSWERS)
def test_a_part_of_an_answer_counts_in_every_script_without_spaces(language):
    right, given = ANSWERS[language]
    assert has_characters(right) and is_of_characters(right)
    assert answer_score(given, [right], may_be_empty=True) == (0, 0), "words are whole phrases"
    score = answer_score(given, [right], by_characters=True, may_be_empty=True)
    assert score.exact_match == 0 and 0.5 < score.f1 < 1
    assert answer_score(f"\u300c{right}\u300d.", [right], by_characters=True, may_be_empty=True) == (1, 1)


@pytest.mark.parametrize("text", ["New York", "\u041c\u043e\u0441\u043a\u0432\u0430", "\u0627\u0644\u0642\u0627\u0647\u0631\u0629", "\u0939\u093f\u0928\u094d\u0926\u0940", "1998"])  # fmt: skip
def test_scripts_with_spaces_stay_by_words(text):
    assert not has_characters(text) and not is_of_characters(text)
    assert segments(text) == text.lower().split()


def test_other_letters_and_digits_stay_words_and_korean_keeps_its_spaces_where_all_must_match():
    assert segments("1998\u5e74 the Olympics\uff01") == ["1998", "\u5e74", "the", "olympics"]
    assert segments("\uc11c\uc6b8 \uc2dc") == ["\uc11c", "\uc6b8", "\uc2dc"]
    assert segments_of_match("\uc11c\uc6b8 \uc2dc") == ["\uc11c\uc6b8", "\uc2dc"]
    assert answer_score("\uc11c\uc6b8\uc2dc", ["\uc11c\uc6b8 \uc2dc"], by_characters=True) == (0, 1)
