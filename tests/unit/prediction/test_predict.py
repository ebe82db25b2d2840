"""Predictions of every kind: what the model says of each record, in order, whatever the windows and batches."""

import bz2
import gzip
import io
import json
import lzma
import os
import pty
import select
import sys
import threading

import fsspec
import pytest
import torch
from backports import zstd
from fsspec.implementations.memory import MemoryFileSystem

from roberta_plugin.cli import main
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction import predict as predicting
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions, predict
from tests.tiny_predictors import CLASSES, LABELS, PAIRS, answers, new_predictors, retold

models = pytest.fixture(new_predictors, scope="module")


def test_labels_are_those_of_the_head_in_any_window_and_batch(models):
    hub = RobertaHub.from_pretrained(models["made_three"])
    found = answers(models["made_three"], PAIRS)
    assert [answer["id"] for answer in found] == list(range(40))
    pairs = [(record["text"], record["text_pair"]) for record in PAIRS]  # with a space at the end
    expected = hub.predict(CLASSES, pairs).exp()
    assert [answer["label"] for answer in found] == [LABELS[row] for row in expected.argmax(dim=1).tolist()]
    probabilities = [list(answer["probabilities"].values()) for answer in found]
    torch.testing.assert_close(torch.tensor(probabilities), expected, atol=2e-5, rtol=0)
    assert len({answer["probability"] for answer in found}) > 10
    again = answers(models["made_three"], PAIRS, window=7, batch_tokens=25)
    for one, other in zip(again, found, strict=True):
        assert (one["label"], one["probability"]) == (other["label"], pytest.approx(other["probability"], abs=1e-4))


def test_texts_are_cut_as_in_training_and_say_so(models):
    cut, whole = answers(models["made_three"], [{"text": "x" * 90, "text_pair": "good"}, PAIRS[0]])
    assert cut["truncated"] is True
    assert "truncated" not in whole
    hub = RobertaHub.from_pretrained(models["made_three"])
    sequence = hub.codec.encoder.join(*hub.codec.encoder.ids_of_all(["x" * 90, "good"]), max_length=30)
    expected = hub.predict(CLASSES, torch.from_numpy(sequence).long()).exp()[0]
    assert list(cut["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-4)


def test_columns_of_the_task_are_fields_too(models):
    named = [{"sentence": record["text"], "sentence_pair": record["text_pair"]} for record in PAIRS[:5]]
    found, expected = answers(models["made_three"], named), answers(models["made_three"], PAIRS[:5])
    assert [answer["probabilities"] for answer in found] == [answer["probabilities"] for answer in expected]
    single = answers(models["made"], [{"sentence": "good"}, "good"])
    assert single[0] == single[1]


def test_a_stop_keeps_what_was_answered(models, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 1, "text": "good"}\n{"text": ""}\n')
    settings = {"model": models["made"], "input": path, "output": tmp_path / "out.jsonl", "device": "cpu"}
    said = r"in\.jsonl, line 2: .* is empty.*out\.jsonl\.partial, as JSON Lines\.$"
    with pytest.raises(ValueError, match=said):
        predict(PredictSettings(**settings))
    assert not (tmp_path / "out.jsonl").exists()
    assert json.loads((tmp_path / "out.jsonl.partial").read_text())["id"] == 1
    result = predict(PredictSettings(**settings, on_error="skip"))
    assert (result.num_answers, result.num_errors) == (2, 1)
    assert [json.loads(line).get("line") for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [None, 2]


@pytest.fixture
def stdin(monkeypatch):
    """Give a text on standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_standard_input_is_answered_on_standard_output(models, stdin, capfdbinary):
    stdin("good\r\nbad\n")
    predict(PredictSettings(model=models["made"], device="cpu"))
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    expected = answers(models["made"], ["good", "bad"])
    assert found == [{"line": number, **answer} for number, answer in enumerate(expected, start=1)]


@pytest.mark.parametrize("source", ["pipe", "terminal", "fifo"])
def test_what_a_pipe_has_written_is_answered_before_more_comes(models, tmp_path, monkeypatch, source):
    write_to, read_from = (None, None)
    path = None
    if source == "fifo":
        path = tmp_path / "records"
        os.mkfifo(path)
    else:
        read_from, write_to = pty.openpty()[::-1] if source == "terminal" else os.pipe()
        monkeypatch.setattr(sys, "stdin", open(read_from))  # noqa: SIM115
    answered, output = os.pipe()
    monkeypatch.setattr(sys, "stdout", open(output, "w"))  # noqa: SIM115
    seen = []

    def converse():
        file = os.open(path, os.O_WRONLY) if write_to is None else write_to
        for line in (b"good\n", b"bad\n"):
            os.write(file, line)
            seen.append(bool(select.select([answered], [], [], 60)[0]) and os.read(answered, 2**16).count(b"\n"))
        if source == "terminal":
            os.write(file, b"\x04")  # Ctrl-D
        else:
            os.close(file)

    speaker = threading.Thread(target=converse, daemon=True)
    speaker.start()
    predict(PredictSettings(model=models["made"], input=path, format="text", device="cpu"))
    speaker.join(60)
    assert seen == [1, 1]


def test_a_closed_standard_input_is_named(models, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="Standard input is closed: name a file by --input"):
        predict(PredictSettings(model=models["made"], device="cpu"))


@pytest.mark.parametrize(
    ("first", "remedy"),
    [
        ("id,text,label", "--format csv, or --format text if it is one"),
        (",text", "--format csv, or"),  # pandas' index
        ('"text","id"', "--format csv, or"),
        ("id;sentence", "--format csv --delimiter ';', or"),  # SST-2's column
        ("id\ttext", "--format tsv, or"),
    ],
)
def test_a_table_is_not_read_as_texts(models, tmp_path, stdin, capsys, first, remedy):
    command = ["predict", str(models["made"]), "--device", "cpu", "--no-progress"]
    for options, code in (([], 2), (["--format", "text", "--output", str(tmp_path / "out.jsonl")], 0)):
        stdin(f"{first}\n1,good,0\n")
        assert main([*command, *options]) == code
        if code:
            error = capsys.readouterr().err
            assert "standard input, line 1: " in error and f"Give {remedy}" in error


def test_a_file_in_the_place_of_a_text_is_not_answered_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text("text\ngood\n")
    with pytest.raises(ValueError, match=r"new\.csv is a file, but arguments after the model are texts: give --input"):
        PredictSettings(model=tmp_path, texts=("a text", "new.csv"))
    PredictSettings(model=tmp_path, texts=("other.csv", ".", "x" * 5000))


@pytest.mark.parametrize("text", ["text", "a text, and good", "text, good", "good text", "id,sentiment"])
def test_texts_that_mention_a_column_are_no_table(models, stdin, text):
    stdin(text)
    assert len(answers(models["made"], None)) == 1


def test_a_bad_value_is_named_by_its_own_column(models, tmp_path, capsys):
    (tmp_path / "in.csv").write_text('review,more\ngood,bad\n"",good\n')
    command = ["predict", str(models["made_three"]), "--input", str(tmp_path / "in.csv"), "--text-column", "review"]
    assert main([*command, "--text-pair-column", "more", "--output", str(tmp_path / "out.jsonl")]) == 2
    shown = capsys.readouterr().err
    assert "in.csv, line 3: the column 'review' is empty" in shown and "'text'" not in shown


def test_windows_hold_a_limited_number_of_records_and_characters(models, monkeypatch):
    kind = kind_class("made")
    sizes = []
    answer = kind.answer
    monkeypatch.setattr(kind, "answer", lambda self, texts: sizes.append(len(texts)) or answer(self, texts))
    answers(models["made"], ["good"] * 25, window=10)
    assert sizes == [10, 10, 5]
    sizes.clear()
    monkeypatch.setattr(predicting, "MOST_CHARACTERS", 20)
    answers(models["made"], ["good good good"] * 4)
    assert sizes == [2, 2]


def test_records_are_read_no_further_than_a_window_ahead(models):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield "good"

    found = iterate_predictions(PredictSettings(model=models["made"], device="cpu", window=8), endless())
    assert next(found)["label"] in "01"
    assert len(taken) == 8


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("fill_mask", {"task_kind": "made"}, "has no head for made: fine-tune it first"),
        ("made", {"head": "mnli"}, "--head mnli: the model has sentence_classification_head for made"),
        ("made", {"task_kind": "made_other"}, "has no head for made_other"),
        ("made", {"max_length": 99}, "--max-length 99: the model has 40 positions"),
        ("made", {"device": "cuda:77"}, "--device cuda:77 cannot be used here"),
    ],
)
def test_what_a_model_cannot_do_is_said(models, name, changes, message):
    with pytest.raises(ValueError, match=message):
        list(iterate_predictions(PredictSettings(**{"model": models[name], "device": "cpu", **changes}), ["good"]))
    with pytest.raises(FileNotFoundError, match=r"--input .*none\.txt does not exist"):
        predict(PredictSettings(model=models[name], input=models[name] / "none.txt"))


TABLE = [{"text": "good bad", "text_pair": "bad, good"}, {"text": "good", "text_pair": "bad bad"}]
AS_JSON = "".join(json.dumps(row) + "\n" for row in TABLE).encode()
AS_CSV = b'text,text_pair\ngood bad,"bad, good"\ngood,bad bad\n'
AS_TSV = b"text\ttext_pair\ngood bad\tbad, good\ngood\tbad bad\n"


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("t.csv", AS_CSV, []),
        ("t.csv", AS_TSV.replace(b"\t", b";"), ["--delimiter", ";"]),
        ("t.csv.gz", gzip.compress(AS_CSV), []),
        ("t.tsv.xz", lzma.compress(AS_TSV), []),
        ("t.json", AS_JSON, []),
        ("t.jsonl.bz2", bz2.compress(AS_JSON), []),
        ("t.ndjson.zst", zstd.compress(AS_JSON), []),
        ("t.txt", AS_CSV, ["--format", "csv"]),
        ("t.parquet", None, []),
        ("memory://predict/t.csv", AS_CSV, []),
    ],
)
def test_the_command_reads_whatever_a_training_reads(models, tmp_path, monkeypatch, name, content, options):
    path, output, first_line = tmp_path / name, tmp_path / "out.jsonl", 2 if options or "sv" in name else 1
    if "://" in name:
        path = name
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(MemoryFileSystem, "store", {})
        fsspec.filesystem("memory").pipe(name, content)
    elif content is None:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(TABLE), path)
    else:
        path.write_bytes(content)
    words = ["predict", str(models["made_three"]), "--input", str(path), "--output", str(output), *options]
    assert main([*words, "--device", "cpu", "--no-progress"]) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    expected = answers(models["made_three"], TABLE)
    assert found == [{"line": number, **answer} for number, answer in enumerate(expected, start=first_line)]


def test_a_second_text_of_another_name_is_named(models, tmp_path, caplog):
    record = {"text": "good", "pair": "bad", "label": "x", "id": "a"}
    with pytest.raises(ValueError, match=r"\(there are text, pair, label, id\).* --text-pair-column"):
        answers(models["made_three"], [record])
    # as of a model by Hugging Face, which may have learned from pairs
    model = retold(models["made_three"], tmp_path / "imported", task=None)
    answers(model, [record, record])
    assert [said.message for said in caplog.records if said.levelname == "WARNING"] == [
        "'pair' of the records is not read, and the model does not say whether it was fine-tuned on pairs of texts: "
        "if it was, name the column of the second by --text-pair-column"
    ]
    caplog.clear()
    answers(model, [record], text_pair_column="pair")
    answers(model, ["good", {"text": "good", "id": "a", "label": "x", "stars": "3.5", "note": " "}])  # as of CSV
    assert not caplog.records
