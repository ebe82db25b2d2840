"""The prepared folder: what is written is read, and nothing is half there."""

import json

import numpy as np
import pytest

from roberta_plugin.finetuning.prepared import Prepared, PreparedWriter, content_fault
from tests.tiny_benchmarks import words_tokenizer, write_prepared


def begin(folder):
    tokenizer, vocabulary = words_tokenizer()
    settings = {"max_length": 8}
    return PreparedWriter(folder, task="CoLA", tokenizer=tokenizer, vocabulary=vocabulary, settings=settings)


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_what_is_written_is_read(tmp_path, name):
    with begin(tmp_path / "set") as writer, writer.split(name) as split:
        split.add([np.array([0, 9, 2]), np.array([0, 2])], label=3, score=0.1)
        split.add([np.array([0, 7, 8, 2])], label=4, score=2.5)
        split.record({"id": "a", "text": "caf\u00e9\nline"})
        split.array("table", np.eye(3))
    prepared = Prepared.open(tmp_path / "set")
    assert (prepared.task, prepared.settings, prepared.splits) == ("CoLA", {"max_length": 8}, (name,))
    assert len(prepared.vocabulary) == len(words_tokenizer()[1])
    assert prepared.tokenizer.encode("good") == words_tokenizer()[0].encode("good")
    found = prepared.split(name)
    assert len(found) == 2
    assert [found.sequences[i].tolist() for i in range(3)] == [[0, 9, 2], [0, 2], [0, 7, 8, 2]]
    assert found.offsets.tolist() == [0, 2, 3]
    assert {name: values.tolist() for name, values in found.columns.items()} == {"label": [3, 4], "score": [0.1, 2.5]}
    assert found.columns["label"].dtype == np.int64
    assert found.columns["score"].dtype == np.float64
    assert np.array_equal(found.array("table"), np.eye(3))
    assert list(found.records()) == [{"id": "a", "text": "caf\u00e9\nline"}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_changed_labels_are_refused_wherever_they_are_read(tmp_path):
    """A bit flipped in a label: counting the labels would take petabytes."""
    tokenizer, vocabulary = words_tokenizer()
    settings = {"max_length": 8, "labels": ["0", "1"]}
    with (
        PreparedWriter(
            tmp_path / "set", task="CoLA", tokenizer=tokenizer, vocabulary=vocabulary, settings=settings
        ) as writer,
        writer.split("train") as split,
    ):
        split.add([np.array([0, 2])], label=1)
    np.save(tmp_path / "set" / "train.label.npy", np.array([2**46]))
    with pytest.raises(ValueError, match=r"train\.label\.npy was changed since it was made"):
        _ = Prepared.open(tmp_path / "set").split("train").columns


def test_a_split_without_examples_or_columns_can_be_read(tmp_path):
    with begin(tmp_path / "set") as writer:
        with writer.split("train"):
            pass
        with writer.split("test") as split:
            split.add([np.array([0, 2])])
    prepared = Prepared.open(tmp_path / "set")
    assert (len(prepared.split("train")), prepared.split("train").offsets.tolist()) == (0, [0])
    assert prepared.split("test").columns == {}


def test_an_error_leaves_no_folder(tmp_path):
    with pytest.raises(RuntimeError), begin(tmp_path / "new") as writer:
        with writer.split("train") as split:
            split.add([np.array([0, 2])])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_there_is_written_over(tmp_path):
    write_prepared(tmp_path / "old")
    with pytest.raises(FileExistsError, match="holds a prepared set already: give --overwrite"):
        begin(tmp_path / "old")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="mine exists: name a folder that is empty or new"):
        begin(tmp_path / "mine")


def test_one_process_at_a_time_writes_a_folder(tmp_path):
    with begin(tmp_path / "set") as first, first.split("train") as split:
        split.add([np.array([0, 2])])
        with pytest.raises(FileExistsError, match=r"Another process is preparing .*set now"), begin(tmp_path / "set"):
            pass
        late = begin(tmp_path / "set")
    assert len(Prepared.open(tmp_path / "set").split("train")) == 1
    with pytest.raises(FileExistsError, match="holds a prepared set already"), late:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    (tmp_path / ".set.partial").mkdir()
    (tmp_path / ".set.partial" / "train.bin").write_bytes(b"half")
    with begin(tmp_path / "set") as writer, writer.split("test") as split:
        split.add([np.array([0, 2])])
    assert not (tmp_path / "set" / "train.bin").exists()


def test_folders_that_are_none_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="roberta prepare TASK"):
        Prepared.open(tmp_path)
    prepared = write_prepared(tmp_path / "set")
    with pytest.raises(ValueError, match="no split 'dev'; it has train, valid"):
        prepared.split("dev")
    (tmp_path / "set" / "train.label.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.label\.npy does not exist"):
        _ = prepared.split("train").columns
    path = tmp_path / "set" / "prepared.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 9'))
    with pytest.raises(ValueError, match="format 9"):
        Prepared.open(tmp_path / "set")
    path.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        Prepared.open(tmp_path / "set")


@pytest.mark.parametrize(("labels", "is_sound"), [(3, False), (["a"], True)])
def test_labels_that_are_no_list_are_a_fault_of_the_file(labels, is_sound):
    content = {"format": 2, "task": "x", "splits": {}, "files": {}, "settings": {"labels": labels}}
    assert content_fault(content) == (None if is_sound else "the setting 'labels' is not a list")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["splits"]["train"].update(columns=[]), "columns and arrays of the split 'train'"),
        (lambda content: content["splits"]["train"].update(examples=7), "the split 'train' has 40 examples, and not 7"),
    ],
)
def test_a_file_that_was_changed_by_hand_is_named(tmp_path, change, message):
    write_prepared(tmp_path / "set")
    path = tmp_path / "set" / "prepared.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"prepared\.json is damaged: .*{message}"):
        split = Prepared.open(tmp_path / "set").split("train")
        _ = split.columns, split.offsets
