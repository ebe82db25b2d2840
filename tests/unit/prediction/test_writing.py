"""Answers in files that are complete or called .partial."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import threading
from pathlib import Path

import pytest

from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.prediction.writing import check_output, open_output, partial_path
from roberta_plugin.tables import read_table


def test_lines_are_json_in_utf_8(tmp_path):
    path = tmp_path / "out.jsonl"
    with open_output(path) as writer:
        writer.write({"text": "caf\u00e9"})
        writer.write({"id": "\ud800"})
        assert not path.exists()
    assert path.read_bytes() == '{"text": "caf\u00e9"}\n{"id": "\\ud800"}\n'.encode()


def test_standard_output_that_takes_text_alone_has_them_too():
    """As in a notebook."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, open_output(None) as writer:
        writer.write({"text": "caf\u00e9"})
    assert shown.getvalue() == '{"text": "caf\u00e9"}\n'


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_numbers_that_json_lacks_are_not_written(tmp_path, name):
    """In reduced precision, those of a good model may overflow."""
    said = r"An answer \(id 7\) holds NaN .*: use --precision fp32"
    with pytest.raises(ValueError, match=said), open_output(tmp_path / name) as writer:
        writer.write({"id": 7, "vector": [1.0, float("nan")]})
    assert not (tmp_path / name).exists()


def test_what_was_computed_before_an_error_is_kept(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("earlier\n")
    with pytest.raises(ValueError, match="bad"), open_output(path) as writer:
        writer.write({"a": 1})
        raise ValueError("bad")
    assert path.read_text() == "earlier\n"
    assert json.loads(partial_path(path).read_text()) == {"a": 1}


@pytest.mark.parametrize("name", ["pipe", "pipe.parquet", "pipe.csv"])
def test_a_pipe_stays_a_pipe_and_gets_the_answers(tmp_path, name):
    """A rename would put a file in its place, as in that of /dev/null."""
    path = tmp_path / name
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with open_output(path) as writer:
        writer.write({"a": 1})
    reader.join(10)
    assert read == [b'{"a": 1}\n']
    assert path.is_fifo()
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("count", [1, 100_000])
def test_a_full_disk_is_named(tmp_path, count):
    """At the first write that reaches the disk, or at the last one."""
    path = tmp_path / "out.jsonl"
    partial_path(path).symlink_to("/dev/full")
    said = r"out\.jsonl\.partial could not be written \(No space left on device\)\. Free"
    with pytest.raises(OSError, match=said), open_output(path) as writer:
        for _ in range(count):
            writer.write({"a": 1})
    assert not path.exists()


def test_outputs_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--output .*none/out: the folder does not exist"):
        check_output(tmp_path / "none" / "out")
    with pytest.raises(ValueError, match="is a folder: name a file in it"):
        check_output(tmp_path)
    instead = {
        **dict.fromkeys(("out.txt", "out.xlsx", "out.npz", "out.zip", "out.gz", "out.npy.gz"), "Name "),
        "out.npy": r"Name a \.parquet file: numpy\.stack",
        "Out.ARROW": r"Name a \.parquet file: pyarrow\.parquet\.read_table",
        **{
            f"out.{end}": r"Name \S*out\.\w+, and compress it" for end in ("jsonl.gz", "csv.zst", "tsv.xz", "jsonl.bz2")
        },
    }
    for name, remedy in instead.items():
        with pytest.raises(ValueError, match=rf"{name}: answers are written as \.jsonl, .* and \.parquet\. {remedy}"):
            check_output(tmp_path / name)
    for name in ("out", "out.json", "out.NDJSON", "a [1].csv", "out.pq"):
        check_output(tmp_path / name)


def test_of_two_runs_with_one_output_the_second_is_refused(tmp_path):
    name = "out.jsonl"
    path, partial = tmp_path / name, tmp_path / f"{name}.partial"
    partial.write_bytes(b"left by a run that stopped " * 99)
    with open_output(path) as first:
        first.write({"vector": [1, 2]})
        with pytest.raises(ValueError, match=rf"{name}: another process is writing .*{name}\.partial\. Wait"):
            open_output(path).__enter__()
        first.write({"vector": [3, 4]})
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_text() == '{"vector": [1, 2]}\n{"vector": [3, 4]}\n'
    with open_output(path) as later:
        later.write({"vector": [5, 6]})
    assert [each.name for each in tmp_path.iterdir()] == [name]


ANSWERS = [
    {"id": 1, "label": 'a, "b"\nc', "probability": 0.1, "probabilities": {"a": 0.25, "b": 1}},
    {"id": "x\t\u00e9", "label": None, "probabilities": {"a": 1.0, "b": 0.5}, "truncated": True, "tags": ["O"]},
    {"line": 3, "error": "bad"},
]
COLUMNS = ["id", "label", "probability", "probabilities", "truncated", "tags", "line", "error"]


def written(path, answers):
    path.parent.mkdir()
    check_output(path)
    with open_output(path) as writer:
        for answer in answers:
            writer.write(answer)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return path


@pytest.mark.parametrize(("name", "delimiter"), [("Out.CSV", ","), ("out.tsv", "\t")])
def test_csv_and_csv_with_tabs_have_a_column_for_each_field_and_are_read_again(tmp_path, name, delimiter):
    path = written(tmp_path / "a" / name, ANSWERS)
    with open(path, newline="", encoding="utf-8") as file:
        header, first, second, third = csv.reader(file, delimiter=delimiter)
    assert header == COLUMNS
    assert first == ["1", 'a, "b"\nc', "0.1", '{"a": 0.25, "b": 1}', "", "", "", ""]
    assert second == ["x\t\u00e9", "", "", '{"a": 1.0, "b": 0.5}', "true", '["O"]', "", ""]
    assert third == ["", "", "", "", "", "", "3", "bad"]
    assert [list(row.values.values()) for row in read_table(path)] == [first, second, third]


def test_csv_and_parquet_hold_whatever_json_does(tmp_path):
    texts = ["a\rb", "\r", "a\r\nb", "a\n", '"', " a ", "\u2028", "\x85", "=1", ""]
    answers = [{"id": each, "label": "b"} for each in ({}, *texts)]
    path = written(tmp_path / "a" / "out.csv", answers)
    with open(path, newline="", encoding="utf-8") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["{}", *texts]
    assert [row.values["id"] for row in read_table(path)] == ["{}", *texts]
    parquet = pytest.importorskip("pyarrow.parquet")
    for number, values in enumerate(([{}, {}], [[{}], []], [{"a": {}}])):
        table = parquet.read_table(written(tmp_path / f"b{number}" / "out.parquet", [{"id": each} for each in values]))
        assert table.column("id").to_pylist() == [json.dumps(each) for each in values]


def test_a_disk_that_is_full_for_the_table_alone_is_named(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    said = r"^\S*out\.csv, whose answers are in \S*out\.csv\.partial as JSON Lines, could not"
    with pytest.raises(OSError, match=said), open_output(path) as writer:
        writer.write({"id": 1})
    assert partial_path(path).read_text() == '{"id": 1}\n'


def test_what_a_killed_run_left_of_the_table_is_removed_by_the_next(tmp_path):
    path = tmp_path / "a [1].csv"
    if os.fork() == 0:
        os.replace = lambda *_: os._exit(9)
        try:
            with open_output(path) as writer:
                writer.write({"id": 1})
        finally:
            os._exit(1)
    os.wait()
    assert len(list(tmp_path.iterdir())) == 2
    with open_output(path) as writer:
        writer.write({"id": 1})
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_has_lists_and_objects_and_json_where_types_differ(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    many = [{"vector": [0.5, number]} for number in range(5000)]  # several batches
    table = parquet.read_table(written(tmp_path / "a" / "out.parquet", [*many, *ANSWERS, {"id": "\ud800"}]))
    assert table.column_names == ["vector", *COLUMNS]
    assert str(table.schema.field("vector").type) == "list<element: float>"
    *found, last = table.to_pylist()
    assert [row["vector"] for row in found[:5000]] == [row["vector"] for row in many]
    for row, answer in zip(found[5000:], ANSWERS, strict=True):
        wanted = {**answer, "id": str(answer["id"])} if "id" in answer else answer
        assert row == {**dict.fromkeys(row), **wanted}
    assert last["id"] == "\\ud800"
    assert parquet.read_table(written(tmp_path / "b" / "out.pq", [])).num_rows == 0


def test_an_output_is_not_the_input_and_csv_may_be_read_as_texts():
    for source in ("a", "b/../a.partial"):
        with pytest.raises(ValueError, match="--output a would overwrite the input itself"):
            PredictSettings(model=Path("m"), input=Path(source), output=Path("a"))
    assert PredictSettings(model=Path("m"), input=Path("a.csv"), format="text").format == "text"
