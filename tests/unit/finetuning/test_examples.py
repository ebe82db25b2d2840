"""Fields become texts and labels, and odd rows are named."""

import logging
import math

import pytest

from roberta_plugin.finetuning.examples import Example, label_of, warn_of_duplicates, warn_of_overlap
from roberta_plugin.tables import Row


def example(tmp_path, line, text, target, name="my.csv"):
    return Example(path=tmp_path / name, line=line, id=str(line), texts=(text,), target=target)


def test_a_label_is_the_same_in_every_format():
    assert {label_of(value, "label", "here") for value in (1, 1.0, "1", " 1 ")} == {"1"}
    assert [label_of(value, "label", "here") for value in (True, False, 2.5, -3)] == ["true", "false", "2.5", "-3"]


@pytest.mark.parametrize("value", [None, "", "  ", math.nan])
def test_an_empty_label_is_refused(value):
    with pytest.raises(ValueError, match="here: the label in the column 'label' is empty"):
        label_of(value, "label", "here")


def test_a_list_is_no_label_and_an_empty_text_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"must hold a label, found \['a'\]"):
        label_of(["a"], "label", "here")
    with pytest.raises(ValueError, match=r"my\.csv, line 7: the column 'text' is empty"):
        Row(tmp_path / "my.csv", 7, {"text": "  "}).text("text", option="--text-column").strip()
    assert Row(tmp_path / "my.csv", 7, {"text": " a "}).text("text", option="--text-column").strip() == "a"


def test_rows_that_repeat_or_contradict_earlier_ones_are_named(tmp_path, caplog):
    rows = [("a", "x"), ("b", "x"), ("a", "x"), ("b", "y"), ("c", "y")]
    examples = [example(tmp_path, line, text, target) for line, (text, target) in enumerate(rows, start=2)]
    with caplog.at_level(logging.WARNING):
        warn_of_duplicates(examples)
    same, other = caplog.messages
    assert "my.csv, line 4: the row repeats line 2; 1 rows" in same
    assert "my.csv, line 5: the text is that of line 3, with 'y' instead of 'x'; 1 rows contradict" in other
    caplog.clear()
    warn_of_duplicates(examples[:2])
    warn_of_overlap(examples[:1], examples[1:2], split="valid")
    assert not caplog.messages


def test_texts_in_two_splits_are_named(tmp_path, caplog):
    train = [example(tmp_path, 2, "a", "x"), example(tmp_path, 3, "b", "x")]
    test = [example(tmp_path, 2, "c", "x", "dev.csv"), example(tmp_path, 3, "b", "x", "dev.csv")]
    with caplog.at_level(logging.WARNING):
        warn_of_overlap(train, test, split="valid")
    (message,) = caplog.messages
    assert "dev.csv, line 3: the text is also in" in message and "1 of 2 texts of the split valid" in message
