"""The columns of a table that a model learns from are those of a record that it answers about; others are named."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from roberta_plugin.extensions.own_tables.benchmark import records, settings
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.tables import Row
from tests.tiny_tables import write_json_lines

TEXT = {"text": "a text", "text_pair": "its pair", "context": "a context", "question": "a question?", "words": ["w"]}
ROW = {**TEXT, "mine": "my text", "second": "my second", "tokens": ["a", "b"], "one": "1st", "two": "2nd"}


def learned_and_asked(kind, row, *, answers=None, **options):
    """What is read of a row in training, and of the same row as a record."""
    chosen = CustomOptions(kind=kind, train="t.jsonl", **options)
    recorded = settings(max_length=64, options=chosen)
    name = recorded["kind"]
    of_training = kind_class(name)(recorded)
    of_training.rows = lambda path: iter([Row(Path("t.jsonl"), 1, row)])
    recorded |= of_training.settings_of_table(Path("t.jsonl"))
    learned = kind_class(name)(recorded).read_question(Row(Path("t.jsonl"), 1, row))
    answering = kind_class(name)(recorded)
    answering.is_answering = True
    answering.options = SimpleNamespace(text_column=None, text_pair_column=None, output=None, id_column=None)
    return learned, answering.question(row if answers is None else answers)


CHOICES = {"choices_columns": ("one", "two")}
CASES = [
    ("classification", {"text_column": "mine", "text_pair_column": "second"}, ()),
    ("pair", {"text_column": "mine", "text_pair_column": "second"}, ()),
    ("classification", {"text_column": "mine"}, ("text_pair",)),
    ("regression", {"text_column": "mine", "text_pair_column": "second"}, ()),
    ("multi-label", {"text_column": "mine"}, ("text_pair",)),
    ("question-answering", {}, ()),
    ("question-answering", {"text_column": "mine", "text_pair_column": "second"}, ()),
    ("multiple-choice", CHOICES, ()),
    ("multiple-choice", {**CHOICES, "text_column": "mine", "text_pair_column": "second"}, ()),
    ("multiple-choice", {**CHOICES, "text_column": "question"}, ()),
    ("multiple-choice", {**CHOICES, "text_column": "mine"}, ("question",)),
    ("tagging", {}, ()),
    ("tagging", {"text_column": "words"}, ()),
    ("embedding", {"text_column": "mine", "text_pair_column": "second"}, ()),
    ("embedding", {"text_column": "mine"}, ("text_pair",)),
]


@pytest.mark.parametrize(("kind", "options", "absent"), CASES, ids=str)
def test_a_record_with_all_columns_is_read_as_in_training(kind, options, absent):
    row = {name: value for name, value in ROW.items() if name not in absent}
    learned, asked = learned_and_asked(kind, row, **options)
    assert learned == asked


def test_multiple_choice_reads_the_column_question_by_itself_and_asks_for_it_again():
    learned, asked = learned_and_asked("multiple-choice", ROW, **CHOICES)
    assert learned.seconds == asked.seconds == ("a question? 1st", "a question? 2nd")
    row = {name: value for name, value in ROW.items() if name != "question"}
    learned, asked = learned_and_asked("multiple-choice", row, **CHOICES)
    assert learned.seconds == asked.seconds == ("1st", "2nd")
    with pytest.raises(ValueError, match=r"fine-tuned on single texts, and the record has 'question'. Leave it out"):
        learned_and_asked("multiple-choice", row, answers=ROW, **CHOICES)
    with pytest.raises(ValueError, match=r"there is no column 'question' .* fine-tuned on pairs of texts"):
        learned_and_asked("multiple-choice", ROW, answers=row, **CHOICES)


@pytest.mark.parametrize(("words", "tags"), [("tokens", "ner_tags"), ("words", "labels"), ("words", "tags")])
def test_columns_under_another_usual_name_are_read(tmp_path, words, tags, caplog):
    rows = [{words: ["a", str(n)], tags: ["B-X", "O"], "": n} for n in range(20)]
    options = CustomOptions(kind="tagging", train="t.jsonl")
    write_json_lines(tmp_path / "t.jsonl", rows)
    splits, _ = records({"train": [tmp_path / "t.jsonl"]}, options, settings(max_length=64, options=options))
    assert {each.target for split in splits.values() for each in split} == {("B-X", "O")}
    said = [message for message in caplog.messages if "not read" in message]
    assert said == [f"{tmp_path / 't.jsonl'}: columns not read: '' (no name)"]


def test_columns_that_are_not_read_are_named_once(tmp_path, caplog):
    rows = [{"id": n, "text": f"text {n}", "label": str(n % 2), "who": str(n), "source": "web"} for n in range(20)]
    write_json_lines(tmp_path / "t.jsonl", rows)
    write_json_lines(tmp_path / "v.jsonl", [{**row, "split": "v"} for row in rows])
    options = CustomOptions(train="t.jsonl", valid="v.jsonl", id_column="who")
    files = {"train": [tmp_path / "t.jsonl"], "valid": [tmp_path / "v.jsonl"]}
    with caplog.at_level(logging.INFO):
        records(files, options, settings(max_length=64, options=options))
    said = [message for message in caplog.messages if "not read" in message]
    assert said == [
        f"{tmp_path / 't.jsonl'}: columns not read: id, source",
        f"{tmp_path / 'v.jsonl'}: columns not read: split",
    ]
