"""COPA, ReCoRD and CommonsenseQA: a text, and what follows it for each option."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning.benchmarks.superglue import SLOT, TASKS, read_commonsense_qa, read_copa, read_record
from roberta_plugin.tables import Row

COPA = {
    "premise": "I ran. ",
    "choice1": "It rained.",
    "choice2": "I was wet.",
    "question": "cause",
    "idx": 0,
    "label": 0,
}
TEXT = "Ann met Bob in Rome\n@highlight\nBob (Robert) won!\n@highlight\nAnn lost"
QA = {"stem": "Who?", "choices": [{"label": "A", "text": "Ann"}, {"label": "B", "text": "Bob"}]}


def record(*answers):
    spans = [{"start": TEXT.index(name), "end": TEXT.index(name) + len(name) - 1} for name in ("Ann", "Bob", "Robert")]
    given = [{"start": 0, "end": 2, "text": answer} for answer in answers]
    qas = [{"query": "@placeholder won", "answers": given, "idx": 9}]
    return {"passage": {"text": TEXT, "entities": [*spans, spans[0]]}, "qas": qas, "idx": 1}


def seconds(example):
    return [example.texts[1].replace(SLOT, option) for option in example.choices]


def rows(read, content, *, split="valid"):
    return list(read(Row(Path("train.jsonl"), 2, content), split))


def test_copa_asks_for_the_cause_or_the_result():
    (row,) = rows(read_copa, COPA)
    assert (row.texts[0], row.target, row.choices) == ("I ran.", 0, ("It rained.", "I was wet."))
    assert seconds(row) == ["What was the CAUSE of this? It rained.", "What was the CAUSE of this? I was wet."]
    (row,) = rows(read_copa, {**COPA, "question": "effect"}, split="test")
    assert seconds(row)[1] == "What happened as a RESULT? I was wet." and row.target == -1


def test_several_right_entities_of_record_are_rows_of_their_own_in_training_alone():
    (row,) = rows(read_record, record("Robert", "Bob"))
    assert row.texts[0] == "Ann met Bob in Rome. Bob (Robert) won! Ann lost"
    assert (row.id, row.choices, row.target) == (9, ("Ann", "Bob", "Robert"), 1)
    assert set(row.record["right"]) == {"Bob", "Robert"}
    found = rows(read_record, record("Robert", "Bob"), split="train")
    assert [(seconds(row), row.target) for row in found] == [
        (["Bob won", "Ann won"], 0),
        (["Robert won", "Ann won"], 0),
    ]
    assert len({str(row.id) for row in found}) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["qas"][0].update(query="nobody won"), "line 2, qas 1: the query has no @placeholder"),
        (
            lambda content: content["qas"][0]["answers"][0].update(text="Eve"),
            "line 2, qas 1: none of the answers 'Eve'",
        ),
        (lambda content: content["passage"]["entities"][0].update(end=900), "passage, entities 1: start 0 and end 900"),
    ],
)
def test_a_bad_query_of_record_is_named(change, message):
    content = record("Bob")
    change(content)
    with pytest.raises(ValueError, match=message):
        rows(read_record, content)


def test_answers_of_commonsense_qa_are_named_by_letters():
    (row,) = rows(read_commonsense_qa, {"id": "x", "question": QA, "answerKey": "B"})
    assert (row.texts[0], seconds(row), row.target) == ("Q: Who?", ["A: Ann", "A: Bob"], 1)
    with pytest.raises(ValueError, match=r"line 2: answerKey is 'C', and must be one of \"A\", \"B\""):
        rows(read_commonsense_qa, {"id": "x", "question": QA, "answerKey": "C"})
    with pytest.raises(ValueError, match="line 2, question: choices must be two or more with different labels"):
        rows(read_commonsense_qa, {"id": "x", "question": {**QA, "choices": QA["choices"][:1]}, "answerKey": "A"})


def test_a_record_for_a_prediction_has_the_official_fields():
    copa_record, commonsense_qa_record, record_record = (
        TASKS[name].rules.choices for name in ("COPA", "CommonsenseQA", "ReCoRD")
    )
    assert copa_record({"premise": "a", "choice1": "b", "choice2": "c", "question": "effect"}).choices == ("b", "c")
    assert seconds(commonsense_qa_record({"question": QA})) == ["A: Ann", "A: Bob"]
    found = record_record({"passage": TEXT, "query": "@placeholder won", "entities": ["Ann", "Bob"]})
    assert seconds(found) == ["Ann won", "Bob won"]
    with pytest.raises(ValueError, match="the record: there is no column 'premise'"):
        copa_record({"text": "a", "choice1": "b", "choice2": "c", "question": "effect"})
    with pytest.raises(ValueError, match="the record: query needs @placeholder, and entities two texts"):
        record_record({"passage": TEXT, "query": "@placeholder won", "entities": ["Ann"]})
