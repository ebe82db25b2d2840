"""Texts of BoolQ, CB, WiC and MultiRC as the model reads them."""

import pytest

from roberta_plugin.finetuning.benchmarks.superglue import TASKS
from roberta_plugin.finetuning.options import SuperGlueOptions
from tests.tiny_superglue import write_lines

WIC = {"sentence1": "Room and board.", "start1": 9, "end1": 14, "sentence2": "Board the bus!", "start2": 0, "end2": 5}
ANSWERS = [{"text": "Yes. ", "idx": 7, "label": 1}, {"text": "", "idx": 8, "label": 0}]


@pytest.fixture
def rows(tmp_path):
    """The examples of a file with one row."""

    def read(task, content, *, split="train"):
        path = write_lines(tmp_path / f"{split}.jsonl", [content])
        return TASKS[task].records({split: [path]}, SuperGlueOptions(), {})[0][split]

    return read


def of_paragraph(*answers):
    return {
        "idx": 2,
        "passage": {"text": "It is. ", "questions": [{"question": "Is it?", "idx": 3, "answers": answers}]},
    }


def test_a_question_of_boolq_is_followed_by_its_passage(rows):
    content = {"question": "is it on ", "passage": "It is.", "idx": 4, "label": True}
    (row,) = rows("BoolQ", content)
    assert (row.id, row.texts, row.target) == (4, ("is it on", "It is."), "true")
    (row,) = rows("BoolQ", {**content, "label": "anything"}, split="test")
    assert row.target is None


def test_the_word_of_wic_is_between_asterisks_in_both_sentences(rows):
    (row,) = rows("WiC", {**WIC, "word": "board", "idx": 1, "label": False})
    assert (row.texts, row.target) == (("Room and * board *.", "* Board * the bus!"), "false")


def test_each_answer_of_multirc_is_a_row_that_knows_paragraph_question_and_answer(rows):
    found = rows("MultiRC", of_paragraph(*ANSWERS))
    assert [row.id for row in found] == [[2, 3, 7], [2, 3, 8]]
    assert [row.texts for row in found] == [("It is.", "Is it? Yes."), ("It is.", "Is it?")]
    assert [row.target for row in found] == ["1", "0"] and {row.question for row in found} == {(2, 3)}


PAIR = {"premise": "a", "hypothesis": "b", "idx": 0}
MARKS = r"start1 \d+ and end1 \d+ mark no word of sentence1, which has 15"


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("CB", {**PAIR, "label": "yes"}, r"label is 'yes', and must be one of \"contradiction\""),
        ("WiC", {**WIC, "end1": 16, "idx": 1, "label": False}, MARKS),
        ("WiC", {**WIC, "start1": 14, "idx": 1, "label": False}, MARKS),
        (
            "MultiRC",
            of_paragraph(ANSWERS[0], {**ANSWERS[1], "label": 2}),
            "passage, questions 1, answers 2: label is 2, and must be one of 0, 1",
        ),
    ],
)
def test_a_bad_row_is_named(rows, task, content, message):
    with pytest.raises(ValueError, match=rf"train\.jsonl, line 1(: |, ){message}"):
        rows(task, content)


def test_records_for_predictions_have_the_official_fields():
    assert TASKS["MultiRC"].rules.texts({"paragraph": "a", "question": "b", "answer": "c"}) == ("a", "b c")
    assert TASKS["WiC"].rules.texts(WIC) == ("Room and * board *.", "* Board * the bus!")
