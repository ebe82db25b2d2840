"""Probabilities and their means against a plain computation, an example at a time."""

from itertools import pairwise

import numpy as np
import torch

from roberta_plugin.finetuning.kinds.outputs import mean_probabilities, probabilities

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
