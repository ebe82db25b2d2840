"""Texts of BoolQ, CB, WiC and MultiRC as the model reads them."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning.superglue.tasks import TASKS
from roberta_plugin.tables import IN_MEMORY, Row

WIC = {"sentence1": "Room and board.", "start1": 9, "end1": 14, "sentence2": "Board the bus!", "start2": 0, "end2": 5}


def rows(task, content, *, labelled=True):
    return list(TASKS[task].examples_of(Row(Path("train.jsonl"), 9, content), labelled=labelled))


def test_a_question_of_boolq_is_followed_by_its_passage():
    content = {"question": "is it on ", "passage": "It is.", "idx": 4, "label": True}
    (row,) = rows("BoolQ", content)
    assert (row.id, row.texts, row.label) == (4, ("is it on", "It is."), 1)
    (row,) = rows("BoolQ", {**content, "label": "anything"}, labelled=False)
    assert row.label is None


def test_labels_of_cb_are_in_mnli_s_order():
    content = {"premise": "a", "hypothesis": "b", "idx": 0}
    labels = ("contradiction", "neutral", "entailment")
    assert [rows("CB", {**content, "label": label})[0].label for label in labels] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"train.jsonl, line 9: label is 'yes', and must be one of \"contradiction\""):
        rows("CB", {**content, "label": "yes"})


def test_the_word_of_wic_is_between_asterisks_in_both_sentences():
    (row,) = rows("WiC", {**WIC, "word": "board", "idx": 1, "label": False})
    assert row.texts == ("Room and * board *.", "* Board * the bus!")
    assert row.label == 0


@pytest.mark.parametrize("change", [{"end1": 16}, {"start1": 14}])
def test_a_mark_outside_of_its_sentence_is_named(change):
    with pytest.raises(ValueError, match=r"line 9: start1 \d+ and end1 \d+ mark no word of sentence1, which has 15"):
        rows("WiC", {**WIC, **change, "idx": 1, "label": False})


def test_each_answer_of_multirc_is_a_row_that_knows_paragraph_question_and_answer():
    answers = [{"text": "Yes. ", "idx": 7, "label": 1}, {"text": "", "idx": 8, "label": 0}]
    questions = [{"question": "Is it?", "idx": 3, "answers": answers}]
    found = rows("MultiRC", {"idx": 2, "passage": {"text": "It is. ", "questions": questions}})
    assert [row.id for row in found] == [[2, 3, 7], [2, 3, 8]]
    assert [row.texts for row in found] == [("It is.", "Is it? Yes."), ("It is.", "Is it?")]
    assert [row.label for row in found] == [1, 0]
    answers[1]["label"] = 2
    with pytest.raises(
        ValueError, match="line 9, passage, questions 1, answers 2: label is 2, and must be one of 0, 1"
    ):
        rows("MultiRC", {"idx": 2, "passage": {"text": "It is. ", "questions": questions}})


def test_records_for_predictions_have_the_official_fields():
    assert TASKS["MultiRC"].texts_of(Row(IN_MEMORY, 1, {"paragraph": "a", "question": "b", "answer": "c"})) == (
        "a",
        "b c",
    )
    assert TASKS["WiC"].texts_of(Row(IN_MEMORY, 1, WIC)) == ("Room and * board *.", "* Board * the bus!")
