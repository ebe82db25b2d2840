"""Schemas: the right phrase, its rivals, and nothing but meaning to tell them apart."""

from pathlib import Path

from roberta_plugin.finetuning.benchmarks.pronouns import find_schema, training_schemas
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds.phrase_ranking import content_words
from tests.unit.finetuning.benchmarks.glue.test_reader import official

TEXT = "The drain is clogged with hair. It has to be cleaned."


def example(texts, label=0):
    return Example(Path("train.tsv"), 2, "0", texts, str(label))


def test_the_phrase_takes_the_place_of_the_pronoun_and_so_do_its_rivals():
    schema = find_schema(example((TEXT, "The hair has to be cleaned."), 0))
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
    schemas = training_schemas([example((TEXT, text), label) for text, label in hypotheses])
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
