"""SuperGLUE: official files of texts, choices and pronouns become records."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning.benchmarks.base import read_rows
from roberta_plugin.finetuning.benchmarks.pronouns import read_winogrande, read_wsc, training_rows
from roberta_plugin.finetuning.benchmarks.superglue import SLOT, TASKS, read_commonsense_qa, read_copa, read_record
from roberta_plugin.finetuning.options import SuperGlueOptions
from roberta_plugin.tables import Row
from tests.real_data import unpack
from tests.tiny_superglue import write_lines

COPA = {
    "premise": "I ran. ",
    "choice1": "It rained.",
    "choice2": "I was wet.",
    "question": "cause",
    "label": 0,
    "idx": 0,
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
    first, second = rows(read_record, record("Robert", "Bob"), split="train")
    assert (seconds(first), first.target) == (["Bob won", "Ann won"], 0)
    assert (seconds(second), second.target) == (["Robert won", "Ann won"], 0)
    assert str(first.id) != str(second.id)


def test_a_bad_query_of_record_is_named():
    for place, change, message in (
        (lambda content: content["qas"][0], {"query": "nobody won"}, "line 2, qas 1: the query has no @placeholder"),
        (lambda content: content["qas"][0]["answers"][0], {"text": "Eve"}, "line 2, qas 1: none of the answers 'Eve'"),
        (lambda content: content["passage"]["entities"][0], {"end": 900}, "entities 1: start 0 and end 900"),
    ):
        content = record("Bob")
        place(content).update(change)
        with pytest.raises(ValueError, match=message):
            rows(read_record, content)


def test_answers_of_commonsense_qa_are_named_by_letters():
    (row,) = rows(read_commonsense_qa, {"id": "x", "question": QA, "answerKey": "B"})
    assert (row.texts[0], seconds(row), row.target) == ("Q: Who?", ["A: Ann", "A: Bob"], 1)
    with pytest.raises(ValueError, match=r"line 2: answerKey is 'C', and must be one of \"A\", \"B\""):
        rows(read_commonsense_qa, {"id": "x", "question": QA, "answerKey": "C"})
    with pytest.raises(ValueError, match="line 2, question: choices must be two or more with different labels"):
        rows(read_commonsense_qa, {"id": "x", "question": {**QA, "choices": QA["choices"][:1]}, "answerKey": "A"})


def test_records_for_predictions_have_the_official_fields():
    copa, commonsense_qa, of_record = (TASKS[name].rules.choices for name in ("COPA", "CommonsenseQA", "ReCoRD"))
    effect = {"premise": "a", "choice1": "b", "choice2": "c", "question": "effect"}
    assert copa(effect).choices == ("b", "c")
    assert seconds(commonsense_qa({"question": QA})) == ["A: Ann", "A: Bob"]
    asked = {"passage": TEXT, "query": "@placeholder won", "entities": ["Ann", "Bob"]}
    assert seconds(of_record(asked)) == ["Ann won", "Bob won"]
    with pytest.raises(ValueError, match="the record: there is no column 'premise'"):
        copa({name: value for name, value in effect.items() if name != "premise"})
    with pytest.raises(ValueError, match="the record: query needs @placeholder, and entities two texts"):
        of_record({**asked, "entities": ["Ann"]})
    assert TASKS["MultiRC"].rules.texts({"paragraph": "a", "question": "b", "answer": "c"}) == ("a", "b c")
    assert TASKS["WiC"].rules.texts(WIC) == ("Room and * board *.", "* Board * the bus!")


WIC = {"sentence1": "Room and board.", "start1": 9, "end1": 14, "sentence2": "Board the bus!", "start2": 0, "end2": 5}
ANSWERS = [{"text": "Yes. ", "idx": 7, "label": 1}, {"text": "", "idx": 8, "label": 0}]


@pytest.fixture
def rows_of_texts(tmp_path):
    """The examples of a file with one row."""

    def read(task, content, *, split="train"):
        path = write_lines(tmp_path / f"{split}.jsonl", [content])
        return TASKS[task].records({split: [path]}, SuperGlueOptions(), {})[0][split]

    return read


def of_paragraph(*answers):
    asked = {"question": "Is it?", "idx": 3, "answers": answers}
    return {"idx": 2, "passage": {"text": "It is. ", "questions": [asked]}}


def test_a_question_of_boolq_is_followed_by_its_passage(rows_of_texts):
    content = {"question": "is it on ", "passage": "It is.", "idx": 4, "label": True}
    (row,) = rows_of_texts("BoolQ", content)
    assert (row.id, row.texts, row.target) == (4, ("is it on", "It is."), "true")
    (row,) = rows_of_texts("BoolQ", {**content, "label": "anything"}, split="test")
    assert row.target is None


def test_the_word_of_wic_is_between_asterisks_in_both_sentences(rows_of_texts):
    (row,) = rows_of_texts("WiC", {**WIC, "word": "board", "idx": 1, "label": False})
    assert (row.texts, row.target) == (("Room and * board *.", "* Board * the bus!"), "false")


def test_each_answer_of_multirc_is_a_row_that_knows_paragraph_question_and_answer(rows_of_texts):
    found = rows_of_texts("MultiRC", of_paragraph(*ANSWERS))
    assert [row.id for row in found] == [[2, 3, 7], [2, 3, 8]]
    assert [row.texts for row in found] == [("It is.", "Is it? Yes."), ("It is.", "Is it?")]
    assert [row.target for row in found] == ["1", "0"] and {row.question for row in found} == {(2, 3)}


MARKS = r"start1 \d+ and end1 \d+ mark no word of sentence1, which has 15"
TWICE = of_paragraph(ANSWERS[0], {**ANSWERS[1], "label": 2})


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("CB", {"premise": "a", "hypothesis": "b", "idx": 0, "label": "yes"}, r"label is 'yes', .*one of \"contradict"),
        ("WiC", {**WIC, "end1": 16, "idx": 1, "label": False}, MARKS),
        ("WiC", {**WIC, "start1": 14, "idx": 1, "label": False}, MARKS),
        ("MultiRC", TWICE, "passage, questions 1, answers 2: label is 2, and must be one of 0, 1"),
    ],
)
def test_a_bad_row_is_named(rows_of_texts, task, content, message):
    with pytest.raises(ValueError, match=rf"train\.jsonl, line 1(: |, ){message}"):
        rows_of_texts(task, content)


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


def test_punctuation_stays_in_the_text_and_the_word_before_is_forgiven():
    said = "The man saw a dog with "
    for index, pronoun, before, after in ((6, "him.", said, "."), (5, "him", said, "."), (0, "The", "", " man saw")):
        schema = wsc("The man saw a dog with him.", "The man.", index, pronoun).schema
        assert schema.before == before and schema.after.startswith(after) and schema.phrase == "The man"


def test_a_pronoun_elsewhere_is_an_error_that_names_file_line_and_word():
    for index, word in ((1, "'cup'. Correct"), (40, "'missing'")):
        said = (
            rf"val.jsonl, line 4, target: span2_text is 'it', and word {index} of the text, counted from 0, is {word}"
        )
        with pytest.raises(ValueError, match=said):
            wsc("The cup was big and it fell.", "The cup", index, "it")


def test_winogrande_s_first_option_is_the_phrase():
    row = winogrande()
    assert (row.id, row.label, winogrande(answer="1").label) == ("Q1-1", 0, 1)
    assert (row.schema.before, row.schema.after) == ("The cup would not fit as the ", " was big.")
    assert (row.schema.phrase, row.schema.rivals) == ("cup", ("box",))


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
