"""Stored raw outputs: what is read is what was written, for the same sequences only."""

import numpy as np
import pytest

from roberta_plugin.finetuning.kinds.outputs import RawOutputs, read_outputs, write_outputs
from tests.tiny_benchmarks import write_prepared


@pytest.fixture
def split(tmp_path):
    return write_prepared(tmp_path / "set", num_options=1).split("valid")


def numbers(*shape):
    return np.random.default_rng(1).random(shape, dtype=np.float32)


def test_scores_of_classes_come_back(tmp_path, split):
    logits = numbers(40, 2)
    write_outputs(tmp_path / "outputs", RawOutputs(logits=logits), split)
    found = read_outputs(tmp_path / "outputs", split)
    assert np.array_equal(found.logits, logits)
    assert found.start_logits is None


def test_scores_of_spans_come_back_sequence_by_sequence(tmp_path, split):
    starts, ends = [numbers(3), numbers(1), numbers(4)], [numbers(3) + 1, numbers(1) + 1, numbers(4) + 1]
    outputs = RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=numbers(3))
    write_outputs(tmp_path / "outputs", outputs, split)
    found = read_outputs(tmp_path / "outputs", split)
    assert [start.tolist() for start in found.start_logits] == [start.tolist() for start in starts]
    assert [end.tolist() for end in found.end_logits] == [end.tolist() for end in ends]
    assert np.array_equal(found.answerable_logits, outputs.answerable_logits)
    assert found.logits is None


def test_outputs_for_other_sequences_and_damaged_files_do_not_count(tmp_path, split):
    folder = tmp_path / "outputs"
    assert read_outputs(folder, split) is None
    write_outputs(folder, RawOutputs(logits=numbers(40, 2)), split)
    assert read_outputs(folder, write_prepared(tmp_path / "same", num_options=1).split("valid")) is not None
    assert read_outputs(folder, write_prepared(tmp_path / "other", num_options=1, seed=5).split("valid")) is None
    path = folder / "valid.npz"
    path.write_bytes(path.read_bytes()[:200])
    assert read_outputs(folder, split) is None
