"""Competing scores, laid out a row an example."""

import math

import torch

from roberta_plugin.criterions.losses import by_example


def test_options_are_laid_out_by_example():
    found = by_example(torch.arange(1.0, 8.0), torch.tensor([0, 2, 5, 7]))
    assert found[:, :3].tolist() == [[1, 2, -math.inf], [3, 4, 5], [6, 7, -math.inf]]
    assert found.shape == (3, 5)
    assert (found[:, 3:] == -math.inf).all()
