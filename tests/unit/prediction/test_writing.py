"""Answers in files that are complete or called .partial."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import shutil
import tarfile
import threading
from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.prediction.writing import check_output, open_output, partial_path
from roberta_plugin.tables import read_table
from tests.tiny_predictors import LABELS, write_predictor


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
        writer.write({"id": 7, "embedding": [1.0, float("nan")]})
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
        first.write({"embedding": [1, 2]})
        with pytest.raises(ValueError, match=rf"{name}: another process is writing .*{name}\.partial\. Wait"):
            open_output(path).__enter__()
        first.write({"embedding": [3, 4]})
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_text() == '{"embedding": [1, 2]}\n{"embedding": [3, 4]}\n'
    with open_output(path) as later:
        later.write({"embedding": [5, 6]})
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
    many = [{"embedding": [0.5, number]} for number in range(5000)]  # several batches
    table = parquet.read_table(written(tmp_path / "a" / "out.parquet", [*many, *ANSWERS, {"id": "\ud800"}]))
    assert table.column_names == ["embedding", *COLUMNS]
    assert str(table.schema.field("embedding").type) == "list<element: float>"
    *found, last = table.to_pylist()
    assert [row["embedding"] for row in found[:5000]] == [row["embedding"] for row in many]
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


PAIR = {"text": "good bad", "text_pair": "bad good"}
RECORDS = {  # short enough for all lengths that a model may have been fine-tuned with
    "fill_mask": [{"text": "good <mask> bad"}, {"text": "<mask> good"}],
    "pronoun": [{"text": "A dog, and [it] is bad.", "candidates": ["a dog", "a hen"]}],
    "embedding": [{"text": "good"}, PAIR],
    "classification": [PAIR, {"text": "good", "text_pair": "bad bad bad"}],
    "regression": [PAIR, {"text": "good", "text_pair": "bad bad bad"}],
    "multiple_choice": [{"context": "good bad", "question": "so", "options": ["bad", "good", "a"]}],
    "question_answering": [{"question": "so", "context": "bad good bad"}, {"question": "a", "context": "a good b"}],
    "tagging": [{"text": "bad good, so"}, {"words": ["good", "bad"] * 30}],
}
ENCODER, LANGUAGE_MODEL = ("embedding",), ("fill_mask", "pronoun")
HEADS = ("fill_mask", "classification", "regression", "multiple_choice", "question_answering", "tagging")
FORMATS = ("run", "huggingface", "imported", "fairseq", "archive")


def ask(model, kind, tmp_path, *, default=False):
    """What `roberta predict` writes; with `default`, without --task-kind."""
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in RECORDS[kind]))
    words = ["predict", str(model), "--input", str(source), "--output", str(output), "--device", "cpu", "--no-progress"]
    code = main(words if default else [*words, "--task-kind", kind])
    if code:
        return code
    return [json.loads(line) for line in output.read_text().splitlines()]


def close(found, expected):
    """The same structure and texts, and numbers that differ by rounding only."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            close(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-4) if isinstance(expected, float) else expected)


@pytest.fixture(scope="module", params=HEADS)
def models(request, tmp_path_factory):
    """The kind of its head, and a model in each format: path by name."""
    root = tmp_path_factory.mktemp(request.param)
    folder = write_predictor(root / "files", request.param)
    (root / "run" / "checkpoints").mkdir(parents=True)  # a run folder; dict.txt is where it was trained
    shutil.move(folder / "model.pt", root / "run" / "checkpoints" / "checkpoint_best.pt")
    paths = {"run": root / "run"}
    how = {"to": "huggingface", "output_dir": root / "huggingface"}
    paths["huggingface"] = export_model(ExportSettings(checkpoint=paths["run"], **how)).folder
    paths["imported"] = import_model(ImportSettings(source=paths["huggingface"], output_dir=root / "imported")).folder
    if request.param not in ("question_answering", "tagging"):  # which fairseq's model has no head for
        how = {"to": "fairseq", "layout": "2019", "output_dir": root / "roberta.tiny"}
        paths["fairseq"] = export_model(ExportSettings(checkpoint=paths["run"], **how)).folder
        paths["archive"] = root / "roberta.tiny.tar.gz"
        with tarfile.open(paths["archive"], "w:gz") as out:
            out.add(paths["fairseq"], "roberta.tiny")
    return request.param, paths


@pytest.mark.parametrize("format_", FORMATS)
def test_a_model_answers_in_every_format(models, tmp_path, format_, capsys):
    head, paths = models
    if format_ not in paths:
        pytest.skip("fairseq has no such head")
    expected = ask(paths["run"], head, tmp_path, default=True)
    assert len(expected) == len(RECORDS[head])
    says_its_kind = format_ not in ("fairseq", "archive") or head in ("fill_mask", "classification")
    if not says_its_kind:  # fairseq's checkpoints do not say whether one output is a score or an option's
        assert ask(paths[format_], head, tmp_path, default=True) == 2
        assert "was trained for: give --task-kind" in capsys.readouterr().err
    found = ask(paths[format_], head, tmp_path, default=says_its_kind)
    if format_ in ("fairseq", "archive") and head == "classification":  # without names of labels
        assert [answer["label"] for answer in found] == [str(LABELS.index(answer["label"])) for answer in expected]
    elif format_ in ("fairseq", "archive") and head == "regression":  # and without the limits of STS-B
        clipped = [min(max(answer["score"], 0.0), 5.0) for answer in found]
        assert clipped == pytest.approx([answer["score"] for answer in expected], abs=1e-4)
    else:
        close(found, expected)
    for kind in ENCODER:
        vectors = ask(paths[format_], kind, tmp_path)
        assert [len(answer["embedding"]) for answer in vectors] == [24] * len(RECORDS[kind])


@pytest.mark.parametrize("format_", FORMATS)
def test_masks_are_filled_where_the_model_has_the_head_for_it(models, tmp_path, format_, capsys):
    """Hugging Face's classes have one head each, so that of the masked LM stays behind."""
    head, paths = models
    if format_ not in paths:
        pytest.skip("fairseq has no such head")
    lacks_head = head != "fill_mask" and format_ in ("huggingface", "imported")
    for kind in LANGUAGE_MODEL:
        found = ask(paths[format_], kind, tmp_path)
        if lacks_head:
            assert found == 2
            assert "came without a masked-LM head" in capsys.readouterr().err
        else:
            assert len(found) == len(RECORDS[kind])
            assert not any("error" in answer for answer in found)
