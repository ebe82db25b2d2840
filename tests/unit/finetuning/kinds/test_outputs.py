"""Raw outputs on disk, their probabilities, and the numbers that decide beside them."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.finetuning.kinds.outputs import (
    NUMBERS,
    Decisions,
    RawOutputs,
    mean_probabilities,
    probabilities,
    read_outputs,
    write_outputs,
)
from tests.tiny_benchmarks import write_prepared


@pytest.fixture
def split(tmp_path):
    return write_prepared(tmp_path / "set", num_options=1).split("valid")


def numbers(*shape):
    return np.random.default_rng(1).random(shape, dtype=np.float32)


def test_outputs_for_other_sequences_and_damaged_files_do_not_count(tmp_path, split):
    folder = tmp_path / "outputs"
    assert read_outputs(folder, split) is None
    write_outputs(folder, RawOutputs(logits=numbers(40, 2)), split)
    assert read_outputs(folder, write_prepared(tmp_path / "same", num_options=1).split("valid")) is not None
    assert read_outputs(folder, write_prepared(tmp_path / "other", num_options=1, seed=5).split("valid")) is None
    path = folder / "valid.npz"
    path.write_bytes(path.read_bytes()[:200])
    assert read_outputs(folder, split) is None


OFFSETS = np.array([0, 4, 6, 11, 14])


def random_scores(seed=0):
    return np.random.default_rng(seed).normal(scale=4, size=14).astype(np.float32)


def test_probabilities_are_those_of_a_softmax_over_each_questions_options():
    scores = random_scores()
    found = probabilities(scores, OFFSETS)
    for start, stop in pairwise(OFFSETS):
        expected = torch.from_numpy(scores[start:stop]).double().softmax(0).numpy()
        np.testing.assert_allclose(found[start:stop], expected, rtol=1e-12)
    large = probabilities(np.array([800, -800, 0, 0], dtype=np.float32), np.array([0, 2, 4]))
    assert large.tolist() == [1, 0, 0.5, 0.5]


def test_an_ensemble_averages_probabilities_and_not_scores():
    members = [np.array([9, 0, 0], dtype=np.float32), np.array([0, 1, 0], dtype=np.float32)]
    members.append(members[1])
    offsets = np.array([0, 3])
    chances = mean_probabilities(members, offsets)
    np.testing.assert_allclose(chances, np.mean([probabilities(m, offsets) for m in members], axis=0))
    assert chances.argmax() == 0
    others = [np.array([2, 0, 0], dtype=np.float32)] + [np.array([0, 1.5, 0], dtype=np.float32)] * 2
    assert mean_probabilities(others, offsets).argmax() == 1


def test_a_number_is_given_or_found_by_the_answers_of_the_development_set():
    valid = Decisions("valid")
    assert valid.find("threshold", lambda: 0.3, is_labelled=True) == 0.3
    test = Decisions("test", valid.used)
    assert test.find("threshold", lambda: 0.9, is_labelled=True) == 0.3
    assert (valid.used, test.used) == ({"threshold": 0.3}, {"threshold": 0.3})
    for split in ("test", "held_out", "train"):
        with pytest.raises(ValueError, match=rf"not on the split {split}: evaluate `valid` too, or give --null-thresh"):
            Decisions(split).find("null_threshold", lambda: 0.9, is_labelled=True)
    with pytest.raises(ValueError, match=r"found by right answers, which the development set lacks: give --threshold"):
        Decisions("valid").find("threshold", lambda: 0.9, is_labelled=False)


@pytest.mark.parametrize("name", KINDS)
def test_every_number_that_predict_takes_is_declared_by_its_kind(name):
    """`decides_by` is what exports carry, and what models bring along."""
    assert set(kind_class(name).decides_by) == set(KINDS[name].options) & set(NUMBERS)
