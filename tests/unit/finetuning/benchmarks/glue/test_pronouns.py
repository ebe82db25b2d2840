"""Pronouns and phrases found again, and schemas: the right phrase, its rivals, and nothing but meaning to tell them apart."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning.benchmarks.pronouns import align, find_schema, training_schemas
from roberta_plugin.finetuning.examples import Example
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


def example(texts, label=0):
    return Example(Path("train.tsv"), 2, "0", texts, str(label))


def test_the_phrase_takes_the_place_of_the_pronoun_and_so_do_its_rivals():
    schema = find_schema(example((DRAIN, "The hair has to be cleaned."), 0))
    assert (schema.before, schema.after) == ("The drain is clogged with hair. ", " has to be cleaned.")
    assert schema.phrase == "The hair"
    assert schema.rivals == ("The drain", "Drain")


def test_all_phrases_are_written_as_the_place_demands():
    text = "Tatyana knew that Grandma's old friends always enjoyed her soup."
    schema = find_schema(example((text, "Grandma's old friends always enjoyed Tatyana's soup."), 1))
    assert schema.phrase == "Tatyana's"
    assert "Grandma's" in schema.rivals
    assert "old friends'" in schema.rivals
    assert all(rival.endswith("'s") or rival.endswith("s'") for rival in schema.rivals)


def test_a_rival_is_neither_part_of_the_phrase_nor_the_phrase_of_it():
    text = "Anna's good friend Lucy met the friend of a man because she was late."
    schema = find_schema(example((text, "Lucy was late."), 1))
    assert not any("Lucy" in rival for rival in schema.rivals)
    assert {"Anna", "a man"} <= set(schema.rivals)


def test_phrases_of_other_rows_compete_in_training():
    hypotheses = [("The whole hair has to be cleaned.", 0), ("The drain has to be cleaned.", 1)]
    schemas = training_schemas([example((DRAIN, text), label) for text, label in hypotheses])
    assert [schema.phrase for schema in schemas] == ["The drain"]
    assert "The whole hair" in schemas[0].rivals and "Hair" in schemas[0].rivals


def test_without_a_pronoun_there_is_no_schema():
    assert find_schema(example(("The drain is clogged.", "The hair is clogged."), 0)) is None


def test_the_rivals_of_the_real_rows_hold_what_other_rows_ask_for(glue):
    wanted = {}  # a text and the place of its pronoun -> the phrases that its rows ask for, and their rivals
    for rows in official("WNLI", glue).values():
        for row in rows:
            schema = find_schema(row)
            assert schema.rivals
            assert schema.phrase not in schema.rivals
            rivals = [content_words(rival) for rival in schema.rivals]
            wanted.setdefault((schema.before, schema.after), {})[schema.phrase] = rivals
    hits = [
        content_words(other) in rivals
        for phrases in wanted.values()
        for one, rivals in phrases.items()
        for other in phrases.keys() - {one}
    ]
    assert len(hits) > 500
    assert sum(hits) / len(hits) > 0.75


def test_every_right_row_of_the_real_training_set_is_used(glue):
    rows = official("WNLI", glue)["train"]
    assert len(training_schemas(rows)) == sum(row.target == "1" for row in rows) == 312
