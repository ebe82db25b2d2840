"""The right answers to questions in the notations of data sets, and their places."""

import gzip
import json
from pathlib import Path

import pytest

from roberta_plugin.extensions.spans.answers import NO_PLACE, SquadAnswer, parse_answers, place_answer
from roberta_plugin.extensions.spans.benchmarks import examples
from roberta_plugin.extensions.spans.kind import QuestionAnswering
from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.tables import Row

CONTEXT = "Anna saw the boat. Later Bruno saw the boat in Oslo."
SECOND = CONTEXT.rindex("the boat")
SETTINGS = {"text_column": "context", "text_pair_column": "question", "label_column": ["answer"]}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Ann", [("Ann", None)]),
        (["Ann", "Bob"], [("Ann", None), ("Bob", None)]),
        ({"text": ["Ann", "Bob"], "answer_start": [7, 9]}, [("Ann", 7), ("Bob", 9)]),
        ({"text": "Ann", "answer_start": 7}, [("Ann", 7)]),
        ({"text": ["Ann"]}, [("Ann", None)]),
        ([{"text": "Ann", "answer_start": 7}, {"text": "Bob", "answer_start": [9]}], [("Ann", 7), ("Bob", 9)]),
        *((nothing, []) for nothing in (None, "", [], float("nan"), {"text": [], "answer_start": []})),
    ],
    ids=str,
)
def test_every_notation_gives_texts_and_places(value, found):
    assert parse_answers(value, "answers", "x.jsonl, line 1") == found


@pytest.mark.parametrize(
    "value", [7, {"answer": "Ann"}, [7], [{"answer": "Ann"}], {"text": ["a"], "answer_start": [1, 2]}]
)
def test_other_notations_are_refused_with_their_place(value):
    with pytest.raises(ValueError, match=r"x.jsonl, line 1: answers"):
        parse_answers(value, "answers", "x.jsonl, line 1")


def of_row(**values):
    row = Row(Path("t.csv"), 2, {"context": CONTEXT, "question": "?", **values})
    return QuestionAnswering(SETTINGS).read_target(row, ())


@pytest.mark.parametrize(
    ("values", "place", "is_doubtful"),
    [
        ({}, CONTEXT.index("the boat"), False),
        ({"answer_start": SECOND}, SECOND, False),
        ({"answer_start": f"{SECOND}.0"}, SECOND, False),
        ({"answer_start": f"[{SECOND}]"}, SECOND, False),
        ({"answer_start": ""}, CONTEXT.index("the boat"), False),
        ({"answer_start": SECOND + 1}, SECOND, True),
        ({"answer_start": SECOND - 2}, SECOND, True),
        ({"answer_start": -1}, CONTEXT.index("the boat"), True),
        ({"answer_end": SECOND + 8}, SECOND, False),
        ({"answer_end": SECOND + 7}, SECOND, False),
        ({"answer_end": 3}, CONTEXT.index("the boat"), True),
        ({"answer_start": SECOND, "answer_end": SECOND + 8}, SECOND, False),
        ({"answer_start": SECOND, "answer_end": SECOND + 20}, SECOND, True),
        ({"answer": [{"text": "the boat", "answer_start": SECOND}]}, SECOND, False),
        ({"answer": json.dumps([{"text": "the boat", "answer_start": SECOND}])}, SECOND, False),
        ({"answer": {"text": " the boat", "answer_start": SECOND - 1}}, SECOND, False),
    ],
    ids=str,
)
def test_columns_beside_the_answer_say_where_it_is_and_wrong_ones_are_doubtful(values, place, is_doubtful):
    (found,) = of_row(**{"answer": "the boat", **values})
    assert (found.start, found.is_doubtful) == (place, is_doubtful)


@pytest.mark.parametrize("wrong", ["x", "1.5", "[1, 2]", {"a": 1}])
def test_a_place_that_is_no_number_is_refused_by_column_and_line(wrong):
    with pytest.raises(ValueError, match=r"t.csv, line 2: the column 'answer_start' must hold one whole number"):
        of_row(answer="the boat", answer_start=wrong)


def test_offsets_in_other_units_are_found_nearby():
    context = "\U0001f642 \u00e9t\u00e9: the boat, the boat"
    right = context.index("the boat")
    for start in (len(context[:right].encode()), len(context[:right].encode("utf-16-le")) // 2):
        found = place_answer(context, "the boat", start)
        assert found == SquadAnswer("the boat", right, start) and found.is_doubtful
    assert place_answer(context, "nowhere", 3).start == NO_PLACE


ROW = {"id": "a", "title": "t", "context": CONTEXT, "question": "What?"}
PLACES = {"text": ["the boat"], "answer_start": [SECOND]}
LISTED = [{"text": "the boat", "answer_start": SECOND}]
MRQA = {
    "context": CONTEXT,
    "qas": [
        {
            **{"qid": "a", "question": "What?", "answers": ["the boat"]},
            "detected_answers": [{"text": "the boat", "char_spans": [[SECOND, SECOND + 7]], "token_spans": [[9, 10]]}],
        }
    ],
}
FILES = {
    "squad": json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [{**ROW, "answers": LISTED}]}]}]}),
    "object in paragraphs": json.dumps(
        {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [{**ROW, "answers": PLACES}]}]}]}
    ),
    "rows in data": json.dumps({"version": "1", "data": [{**ROW, "answers": PLACES}]}),
    "array": json.dumps([{**ROW, "answers": LISTED}]),
    "lines": json.dumps({**ROW, "answers": PLACES}) + "\n",
    "MRQA": json.dumps({"header": {"dataset": "X", "split": "dev"}}) + "\n" + json.dumps(MRQA) + "\n",
}


@pytest.mark.parametrize("task", ["squad1", "squad2"])
@pytest.mark.parametrize("name", FILES)
def test_files_of_other_programs_are_read_as_squads(tmp_path, name, task):
    path = tmp_path / "train.json"
    content = FILES[name]
    if task == "squad2" and name in ("squad", "object in paragraphs"):
        content = content.replace('"id": "a"', '"id": "a", "is_impossible": false')
    path.write_text(content)
    if task == "squad2" and name == "MRQA":
        with pytest.raises(ValueError, match=r"has no is_impossible.*use the task squad1"):
            list(examples(task, "train", [path], SquadOptions()))
        return
    (found,) = examples(task, "train", [path], SquadOptions())
    assert (found.id, found.texts) == ("a", (CONTEXT, "What?"))
    assert found.target == (SquadAnswer("the boat", SECOND, SECOND),)


def test_a_row_without_answers_is_impossible_in_squad_2_alone(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": [{**ROW, "answers": {"text": [], "answer_start": []}}]}))
    (found,) = examples("squad2", "train", [path], SquadOptions())
    assert found.target == ()
    with pytest.raises(ValueError, match="has is_impossible true, which only SQuAD 2"):
        list(examples("squad1", "train", [path], SquadOptions()))


def test_compressed_lines_are_read(tmp_path):
    path = tmp_path / "dev.jsonl.gz"
    path.write_bytes(gzip.compress(FILES["MRQA"].encode()))
    (found,) = examples("squad1", "valid", [path], SquadOptions())
    assert found.target == (SquadAnswer("the boat", SECOND, SECOND),)
