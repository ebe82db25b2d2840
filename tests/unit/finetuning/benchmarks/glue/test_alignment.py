"""Pronouns and phrases found again: rows as WNLI has them, and the real ones."""

import pytest

from roberta_plugin.finetuning.benchmarks.pronouns import align
from roberta_plugin.finetuning.kinds.phrase_ranking import contains, content_words
from tests.unit.finetuning.benchmarks.glue.test_reader import official

DRAIN = "The drain is clogged with hair. It has to be cleaned."
NEWSLETTER = (
    "We had hoped to place copies of our newsletter on all the chairs, but there were simply not enough of them."
)
WAR = "In July, Kamtchatka declared war on Yakutsk. Yakutsk's army was larger, so they were victorious within weeks."


@pytest.mark.parametrize(
    ("text", "hypothesis", "pronoun", "phrase", "cost"),
    [
        (DRAIN, "The hair has to be cleaned.", "It", "The hair", 0.0),
        (
            "Tom talked to Ralph as he took his bishop.",
            "Tom talked to Ralph as he took Ralph's bishop.",
            "his",
            "Ralph's",
            0.0,
        ),
        ("I saw it. She likes it, as he said.", "She likes the sea, as he said.", "it", "the sea", 0.0),
        ("John promised Bill to leave, so an hour later he left.", "Bill left.", "he", "Bill", 0.0),
        (NEWSLETTER, "There were simply not enough chairs.", "them", "chairs", 1.0),
        (WAR, "Yakutsk was victorious within weeks.", "they", "Yakutsk", 1.0),
    ],
)
def test_the_pronoun_is_found_and_what_stands_for_it(text, hypothesis, pronoun, phrase, cost):
    found = align(text, hypothesis)
    assert text[found.start : found.end] == pronoun
    if phrase == "the sea":  # a phrase that the text does not have costs something
        assert found.phrase == phrase and found.cost > cost
    else:
        assert (found.phrase, found.cost) == (phrase, cost)


def test_of_two_pronouns_the_one_whose_surroundings_agree_is_taken():
    text = "Mark heard Steve's feet going down. The door closed after him. He ran to look out."
    first, second = align(text, "The door closed after Mark."), align(text, "Mark ran to look out.")
    assert text[first.start : first.end] == "him"
    assert text[second.start : second.end] == "He"


@pytest.mark.parametrize("hypothesis", ["Nothing agrees here.", "It", ""])
def test_without_agreement_there_is_no_alignment(hypothesis):
    assert align(DRAIN, hypothesis) is None
    assert align("No word of this text stands for another.", "The text stands.") is None


def test_content_words_leave_out_determiners_and_the_possessive_ending():
    assert content_words("The old man\u2019s") == ["old", "man"]
    assert content_words("the boys'") == ["boys"]
    assert content_words("Mr. Singer") == ["mr", "singer"]


def test_contains_looks_for_whole_words_in_a_row():
    assert contains(["a", "b", "c"], ["b", "c"])
    assert not contains(["a", "b", "c"], ["a", "c"])


def test_every_real_row_aligns_and_most_of_them_to_the_letter(glue):
    for rows in official("WNLI", glue).values():
        found = [align(*row.texts) for row in rows]
        assert None not in found
        assert sum(alignment.cost == 0 for alignment in found) / len(rows) > 0.8
        for row, alignment in zip(rows, found, strict=True):
            assert alignment.phrase in row.texts[1]
