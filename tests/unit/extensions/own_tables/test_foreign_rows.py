"""Rows as annotation programs and the hub write them: read where they say one thing, else refused with a row to write."""

import json

import pytest

from tests.tiny_tables import read_own_rows


@pytest.mark.parametrize(
    "written", [lambda label: [label], lambda label: json.dumps([label]), lambda label: {"choices": [label]},
                lambda label: json.dumps({"choices": [label]})],
    ids=["doccano", "its CSV", "Label Studio", "its CSV"],
)  # fmt: skip
def test_a_list_of_one_label_is_the_label(tmp_path, written):
    rows = [{"text": f"text {n}", "label": written(("good", "bad")[n % 2])} for n in range(20)]
    examples, found = read_own_rows(tmp_path, rows)
    assert {example.target for example in examples} == {"good", "bad"} and found["labels"] == ["bad", "good"]


def test_a_list_of_several_goes_to_several_labels(tmp_path):
    rows = [{"text": f"text {n}", "label": {"choices": ["a", "b"][: 1 + n % 2]}} for n in range(20)]
    with pytest.raises(ValueError, match=r"line 2: the column 'label' must hold one label, .*--kind multi-label"):
        read_own_rows(tmp_path, rows)
    examples, _ = read_own_rows(tmp_path, rows, kind="multi-label")
    assert {example.target for example in examples} == {("a",), ("a", "b")}


SPANS = {"text": "Anna Maria lives in Oslo.", "label": [[0, 10, "PER"], [20, 24, "LOC"]]}
STUDIO = {"id": 1, "data": {"text": "fine"}, "annotations": [{"result": [{"value": {"choices": ["good"]}}]}]}
REFUSED = {
    "doccano's spans": (SPANS, "tagging", '{"tokens": ["Anna", "Maria", "lives", "in", "Oslo", "."], "tags": ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]}'),
    "spans as labels": (SPANS, "classification", "For --kind tagging"),
    "Label Studio": (STUDIO, "classification", '{"text": "fine", "label": "good"}'),
    "SQuAD": ({"title": "t", "paragraphs": []}, "question-answering", "The tasks squad1 and, if a question may have no"),
    "MRQA": ({"context": "c", "qas": []}, "question-answering", "read such files: --raw FOLDER --train t.jsonl"),
    "ARC's own": (
        {"question": {"stem": "what?", "choices": [{"label": "A", "text": "x"}]}, "answerKey": "A"},
        "multiple-choice",
        '"choices": [{"label": "A", "text": "x"}], "answerKey": "A"}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_layouts_are_refused_with_the_row_to_write(tmp_path, name):
    row, kind, shown = REFUSED[name]
    with pytest.raises(ValueError, match=r"t.jsonl, line 1: ") as error:
        read_own_rows(tmp_path, [row] * 20, kind=kind)
    assert shown in str(error.value)


def test_the_row_that_a_refusal_shows_is_read(tmp_path):
    rows = []
    for n in range(20):
        with pytest.raises(ValueError, match="one with spans") as error:
            read_own_rows(tmp_path, [{**SPANS, "text": f"{SPANS['text']} {n}"}] * 3, kind="tagging")
        rows.append(json.loads(str(error.value).partition("such as ")[2]))
    examples, _ = read_own_rows(tmp_path, rows, kind="tagging")
    assert examples[0].target[:2] == ("B-PER", "I-PER")


def test_spans_that_are_not_read_are_left_alone(tmp_path, caplog):
    others = {"spans": SPANS["label"], "paragraphs": ["one"]}
    rows = [{**SPANS, **others, "text": f"text {n}", "label": str(n % 2)} for n in range(20)]
    examples, _ = read_own_rows(tmp_path, rows)
    assert len(examples) == 20
