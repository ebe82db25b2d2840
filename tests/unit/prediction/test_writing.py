"""Answers in files that are complete or called .partial."""

import json
import os
import threading

import numpy as np
import pytest

from roberta_plugin.prediction.writing import check_output, open_output, partial_path


def test_lines_are_json_in_utf_8(tmp_path):
    path = tmp_path / "out.jsonl"
    with open_output(path, dim=2) as writer:
        writer.write({"text": "caf\u00e9"})
        writer.write({"id": "\ud800"})
        assert not path.exists()
    assert path.read_bytes() == '{"text": "caf\u00e9"}\n{"id": "\\ud800"}\n'.encode()


@pytest.mark.parametrize("count", [0, 1, 1234])
def test_vectors_are_an_array_with_nan_for_what_was_skipped(tmp_path, count):
    path = tmp_path / "out.npy"
    with open_output(path, dim=3) as writer:
        for number in range(count):
            writer.write({"embedding": [number, 0.5, 1]} if number % 5 else {"error": "bad"})
    found = np.load(path)
    assert found.shape == (count, 3)
    assert found.dtype == np.float32
    assert np.isnan(found[:, 0]).tolist() == [number % 5 == 0 for number in range(count)]


@pytest.mark.parametrize("name", ["out.jsonl", "out.npy"])
def test_numbers_that_json_lacks_are_not_written(tmp_path, name):
    """In reduced precision, those of a good model may overflow."""
    with (
        pytest.raises(ValueError, match=r"An answer \(id 7\) holds NaN .*: use --precision fp32"),
        open_output(tmp_path / name, dim=2) as writer,
    ):
        writer.write({"id": 7, "embedding": [1.0, float("nan")]})
    assert not (tmp_path / name).exists()


def test_what_was_computed_before_an_error_is_kept(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("earlier\n")
    with pytest.raises(ValueError, match="bad"), open_output(path, dim=1) as writer:
        writer.write({"a": 1})
        raise ValueError("bad")
    assert path.read_text() == "earlier\n"
    assert json.loads(partial_path(path).read_text()) == {"a": 1}


@pytest.mark.parametrize("name", ["pipe", "pipe.npy"])
def test_a_pipe_stays_a_pipe_and_gets_the_answers(tmp_path, name):
    """A rename would put a file in its place, as in that of /dev/null."""
    path = tmp_path / name
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with open_output(path, dim=1) as writer:
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
    with (
        pytest.raises(OSError, match=r"out\.jsonl\.partial could not be written \(No space left on device\)\. Free"),
        open_output(path, dim=1) as writer,
    ):
        for _ in range(count):
            writer.write({"a": 1})
    assert not path.exists()


def test_outputs_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--output .*none/out: the folder does not exist"):
        check_output(tmp_path / "none" / "out")
    with pytest.raises(ValueError, match="is a folder: name a file in it"):
        check_output(tmp_path)


@pytest.mark.parametrize("name", ["out.jsonl", "out.npy"])
def test_of_two_runs_with_one_output_the_second_is_refused(tmp_path, name):
    path, partial = tmp_path / name, tmp_path / f"{name}.partial"
    partial.write_bytes(b"left by a run that stopped " * 99)
    with open_output(path, dim=2) as first:
        first.write({"embedding": [1, 2]})
        with pytest.raises(ValueError, match=rf"{name}: another process is writing .*{name}\.partial\. Wait"):
            open_output(path, dim=2).__enter__()
        first.write({"embedding": [3, 4]})
    assert [each.name for each in tmp_path.iterdir()] == [name]
    if name.endswith(".npy"):
        assert np.load(path).tolist() == [[1, 2], [3, 4]]
    else:
        assert path.read_text() == '{"embedding": [1, 2]}\n{"embedding": [3, 4]}\n'
    with open_output(path, dim=2) as later:
        later.write({"embedding": [5, 6]})
    assert [each.name for each in tmp_path.iterdir()] == [name]
