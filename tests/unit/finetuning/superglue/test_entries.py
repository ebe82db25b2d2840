"""Objects of JSON Lines: every message names the file, the line and the field."""

import pytest

from roberta_plugin.finetuning.superglue.entries import Entry, find_files, read_entries, with_unique_ids
from roberta_plugin.finetuning.superglue.texts import TextRow
from tests.tiny_superglue import write_lines


def test_entries_know_their_lines_and_empty_ones_do_not_count(tmp_path):
    path = tmp_path / "val.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": "x\xe2\x80\xa8y"}\n\n{"a": "z"}\n')
    entries = list(read_entries(path))
    assert [entry.text("a") for entry in entries] == ["x\u2028y", "z"]
    assert [entry.where for entry in entries] == [f"{path}, line 1", f"{path}, line 3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "val.jsonl, line 2 is not valid JSON"),
        (b'{"a": 1}\n[1]\n', r"val.jsonl, line 2: expected a JSON object with named fields, found \[1\]"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "val.jsonl, line 2: the bytes are not UTF-8. Save"),
        (b"\n\n", "val.jsonl is empty. Fetch it again."),
    ],
)
def test_what_is_not_json_lines_is_named(tmp_path, content, message):
    (tmp_path / "val.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_entries(tmp_path / "val.jsonl"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda entry: entry.text("b"), "here: the field 'b' is missing; found a, n, list. Add it."),
        (lambda entry: entry.text("n"), "here: n must be a text, found -1"),
        (lambda entry: entry.number("n"), "here: n must be a whole number from 0 on, found -1"),
        (lambda entry: entry.label("a", (False, True)), "here: a is 'x', and must be one of false, true. Correct it."),
        (lambda entry: entry.entry("a"), "here, a: expected a JSON object"),
        (lambda entry: entry.entries("list"), "here, list 1: expected a JSON object with named fields, found 1"),
        (lambda entry: entry.entries("a"), "here: a must be a list, found 'x'"),
    ],
)
def test_a_field_of_another_kind_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(Entry({"a": "x", "n": -1, "list": [1]}, "here"))


def test_a_label_is_compared_with_its_type():
    assert Entry({"label": True}, "").label("label", (False, True)) == 1
    with pytest.raises(ValueError, match="must be one of 0, 1"):
        Entry({"label": True}, "").label("label", (0, 1))


def test_the_same_id_twice_is_an_error_that_names_both_lines():
    entries = [Entry({}, f"f, line {number}") for number in (1, 2, 3)]
    rows = [TextRow(row_id, ("x",), None) for row_id in (7, 8, 7)]
    with pytest.raises(ValueError, match="f, line 3: the id 7 occurs in f, line 1 already"):
        list(with_unique_ids(zip(entries, rows, strict=True)))
    assert list(with_unique_ids(zip(entries[:2], rows[:2], strict=True))) == rows[:2]


def test_files_are_found_in_the_task_s_folder_or_the_one_given(tmp_path):
    files = {"train": ("train.jsonl",), "valid": ("val.jsonl",), "test": ("test.jsonl",)}
    write_lines(tmp_path / "CB" / "train.jsonl", [{}])
    with pytest.raises(FileNotFoundError, match=r"CB holds no val.jsonl: CB needs the official files, unchanged"):
        find_files("CB", tmp_path, files)
    write_lines(tmp_path / "CB" / "val.jsonl", [{}])
    assert find_files("CB", tmp_path, files) == find_files("CB", tmp_path / "CB", files)
    assert set(find_files("CB", tmp_path, files)) == {"train", "valid"}
