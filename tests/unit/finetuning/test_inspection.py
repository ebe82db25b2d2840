"""What `roberta inspect` says of a prepared folder."""

import json

import numpy as np
import pytest

from roberta_plugin.cli import main
from roberta_plugin.finetuning.preparation import describe, find_faults
from roberta_plugin.finetuning.prepared import Prepared, PreparedWriter
from tests.tiny_benchmarks import words_tokenizer, write_prepared, write_tokenizer
from tests.tiny_tables import rows_of, write_csv


@pytest.fixture
def prepared(tmp_path):
    tokenizer, vocabulary = words_tokenizer()
    ids = vocabulary.tokenizer_to_model(tokenizer)
    good, bad = (ids[tokenizer.encode(word)] for word in ("good", "bad"))
    settings = {"max_length": 9, "labels": ["no", "yes"]}
    folder = tmp_path / "set"
    with PreparedWriter(folder, task="RTE", tokenizer=tokenizer, vocabulary=vocabulary, settings=settings) as writer:
        with writer.split("train") as split:
            split.add([np.concatenate([[0], good, [2, 2], bad, [2]])], label=1, score=0.5)
            split.add([np.concatenate([[0], bad, [2]])], label=1, score=2.0)
            split.add([np.concatenate([[0], bad, [2]])], label=0, score=2.0)
        with writer.split("test"):
            pass
    return Prepared.open(folder)


def test_counts_labels_and_texts_are_shown_and_many_values_as_a_range(prepared, tmp_path):
    lines = list(describe(prepared, prepared.split("train")))
    assert lines[0] == "3 examples, 3 sequences, 12 tokens"
    assert lines[1:] == ["label: no 1, yes 2", "score: 0.5 1, 2.0 2", "example 0: good | bad"]
    assert find_faults(prepared, prepared.split("train")) == []
    assert list(describe(prepared, prepared.split("test"))) == ["0 examples, 0 sequences, 0 tokens"]
    assert find_faults(prepared, prepared.split("test")) == []
    many = write_prepared(tmp_path / "many", num_examples=40)
    assert any(line.startswith("weight: 0.0 to 5.57") for line in describe(many, many.split("train")))


@pytest.mark.parametrize("name", ["train.bin", "train.idx", "train.label.npy", "exchanged labels"])
def test_what_is_not_sound_is_said_and_the_exit_code_tells(prepared, name, capsys):
    if name == "exchanged labels":
        name = "train.label.npy"
        np.save(prepared.folder / name, 1 - np.load(prepared.folder / name))
    else:
        content = bytearray((prepared.folder / name).read_bytes())
        content[-3] ^= 1
        (prepared.folder / name).write_bytes(content)
    assert main(["inspect", str(prepared.folder)]) == 1
    shown = capsys.readouterr().out
    assert "train: NOT SOUND" in shown and "test: sound" in shown
    assert f"{name} was changed since it was made: its SHA-256 differs from prepared.json" in shown


EDITS = {
    "another task": ({"task": "RTE"}, "prepared.json: the setting 'labels' is"),
    "no such task": ({"task": "custum"}, "prepared.json: There is no fine-tuning task 'custum'"),
    "labels": ({"settings": {"labels": []}}, "prepared.json lacks the setting 'labels'"),
    "columns": ({"splits": {"valid": {"columns": []}}}, "split 'valid' do not agree about valid.label.npy"),
    "split": ({"splits": {"valid": None}}, "prepared.json lists valid.bin, but no split"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_prepared_json_is_not_sound(tmp_path, capsys, edit):
    write_csv(tmp_path / "my.csv", rows_of("classification", 40))
    folder, tokenizer = tmp_path / "out", write_tokenizer(tmp_path / "tokenizer")
    words = ["--train", str(tmp_path / "my.csv"), "--tokenizer", str(tokenizer), "--max-length", "32"]
    assert main(["prepare", "custom", *words, "--output-dir", str(folder)]) == 0
    assert main(["inspect", str(folder)]) == 0
    change, message = EDITS[edit]
    (folder / "prepared.json").write_text(
        json.dumps(edited(json.loads((folder / "prepared.json").read_text()), change))
    )
    capsys.readouterr()
    assert main(["inspect", str(folder)]) == 1
    assert message in capsys.readouterr().out


def edited(content, change):
    """`content` with the values of `change` at their places; None: taken out."""
    if not isinstance(change, dict):
        return change
    new = {name: edited(content.get(name), value) for name, value in change.items()}
    return {name: value for name, value in {**content, **new}.items() if value is not None or name not in change}
