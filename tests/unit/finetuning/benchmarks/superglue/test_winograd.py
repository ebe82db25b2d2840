"""WSC's and WinoGrande's rows: the gap, the phrase and its rivals; made-up rows, and all official ones of WSC."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning.benchmarks.base import read_rows
from roberta_plugin.finetuning.benchmarks.pronouns import read_winogrande, read_wsc, training_rows
from roberta_plugin.tables import Row
from tests.real_data import unpack


def wsc(text, phrase, index, pronoun, *, label=True):
    target = {"span1_text": phrase, "span1_index": 0, "span2_index": index, "span2_text": pronoun}
    content = {"text": text, "target": target, "idx": 3, "label": label}
    (row,) = read_wsc(Row(Path("val.jsonl"), 4, content), labelled=True)
    return row


def winogrande(**changes):
    content = {"qID": "Q1-1", "sentence": "The cup would not fit as the _ was big.", "option1": "cup", "option2": "box"}
    (row,) = read_winogrande(Row(Path("dev.jsonl"), 1, {**content, "answer": "2", **changes}), labelled=True)
    return row


def test_the_phrase_fills_the_gap_of_the_pronoun_in_text_without_extra_spaces():
    row = wsc("Mr. Singer 's cup did not fit the box , so it was big.", "Mr. Singer 's cup", 11, "it", label=False)
    assert (row.id, row.label) == (3, 0)
    assert row.schema.before == "Mr. Singer's cup did not fit the box, so "
    assert row.schema.after == " was big."
    assert row.schema.phrase == "Mr. Singer 's cup"
    assert "the box" in row.schema.rivals
    assert not any("cup" in rival for rival in row.schema.rivals)


@pytest.mark.parametrize(
    ("index", "pronoun", "before", "after"),
    [
        (5, "him.", "The man saw a dog with ", "."),
        (4, "him", "The man saw a dog with ", "."),
        (0, "The", "", " man saw"),
    ],
)
def test_punctuation_stays_in_the_text_and_the_word_before_is_forgiven(index, pronoun, before, after):
    row = wsc("The man saw a dog_with him.".replace("_", " "), "The man.", index + (index > 0), pronoun)
    assert row.schema.before == before and row.schema.after.startswith(after)
    assert row.schema.phrase == "The man"


def test_a_pronoun_elsewhere_is_an_error_that_names_file_line_and_word():
    message = (
        r"val.jsonl, line 4, target: span2_text is 'it', and word 1 of the text, counted from 0, is 'cup'. Correct"
    )
    with pytest.raises(ValueError, match=message):
        wsc("The cup was big and it fell.", "The cup", 1, "it")
    with pytest.raises(ValueError, match=r"word 40 of the text, counted from 0, is 'missing'"):
        wsc("The cup was big and it fell.", "The cup", 40, "it")


def test_winogrande_s_first_option_is_the_phrase():
    row = winogrande()
    assert (row.id, row.label) == ("Q1-1", 0)
    schema = row.schema
    assert (schema.before, schema.after) == ("The cup would not fit as the ", " was big.")
    assert (schema.phrase, schema.rivals) == ("cup", ("box",))
    assert winogrande(answer="1").label == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "3"}, r"dev.jsonl, line 1: answer is '3', and must be one of \"1\", \"2\". Correct it."),
        ({"sentence": "No gap."}, "dev.jsonl, line 1: the sentence has no gap '_'"),
        ({"option2": "cup "}, "dev.jsonl, line 1: both options are 'cup'"),
        ({"option1": 7}, "dev.jsonl, line 1: the column 'option1' must be a text, found 7"),
    ],
)
def test_a_bad_row_of_winogrande_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        winogrande(**changes)


def test_training_takes_right_phrases_alone_and_turns_winogrande_s_wrong_ones_round():
    rows = [wsc("The cup and the box fell as it was big.", "The cup", 6, "it", label=label) for label in (True, False)]
    assert [schema.phrase for schema in training_rows(rows, are_rivals_options=False)] == ["The cup"]
    right = training_rows([winogrande(), winogrande(answer="1")], are_rivals_options=True)
    assert [(schema.phrase, schema.rivals) for schema in right] == [("box", ("cup",)), ("cup", ("box",))]


def test_every_official_row_of_wsc_is_read(shared_data, tmp_path):
    """All 554 + 104 rows: the pronoun is found, and all but a few have rivals."""
    folder = unpack(shared_data, "superglue", tmp_path) / "superglue" / "WSC"
    rows = {
        split: [row for each in read_rows(folder / name) for row in read_wsc(each, labelled=True)]
        for split, name in (("train", "train.jsonl"), ("valid", "val.jsonl"))
    }
    assert {split: len(found) for split, found in rows.items()} == {"train": 554, "valid": 104}
    assert {split: sum(row.label for row in found) for split, found in rows.items()} == {"train": 259, "valid": 38}
    found = [row.schema for split in rows.values() for row in split]
    assert [schema.phrase for schema in found if not schema.rivals] == []
    assert all(schema.phrase not in schema.rivals and "\n" not in schema.phrase for schema in found)
    assert len(training_rows(rows["train"], are_rivals_options=False)) == 259
