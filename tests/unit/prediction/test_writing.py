"""Answers in files that are complete or called .partial."""

import json

import numpy as np
import pytest

from roberta_plugin.prediction.writing import open_output, partial_path


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


def test_what_was_computed_before_an_error_is_kept(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("earlier\n")
    with pytest.raises(ValueError, match="bad"), open_output(path, dim=1) as writer:
        writer.write({"a": 1})
        raise ValueError("bad")
    assert path.read_text() == "earlier\n"
    assert json.loads(partial_path(path).read_text()) == {"a": 1}
