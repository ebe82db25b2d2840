"""Competing scores, laid out a row an example; options that cannot be."""

import math

import pytest
import torch

import roberta_plugin
from roberta_plugin.criterions.base import FineTuningCriterion
from roberta_plugin.criterions.finetuning import (
    RobertaEmbeddingCriterion,
    RobertaEmbeddingCriterionConfig,
    SummarizationCriterion,
    SummarizationCriterionConfig,
)
from roberta_plugin.criterions.losses import by_example


def test_options_are_laid_out_by_example():
    found = by_example(torch.arange(1.0, 8.0), torch.tensor([0, 2, 5, 7]))
    assert found[:, :3].tolist() == [[1, 2, -math.inf], [3, 4, 5], [6, 7, -math.inf]]
    assert found.shape == (3, 5)
    assert (found[:, 3:] == -math.inf).all()


def test_options_are_checked_without_a_task():
    """As by a plan of trainings, long before one of them starts."""
    roberta_plugin.register()
    for criterion in FineTuningCriterion.__subclasses__():
        criterion.check_options(criterion.config())
    with pytest.raises(ValueError, match="--scale must be greater than 0, got 0"):
        RobertaEmbeddingCriterion.check_options(RobertaEmbeddingCriterionConfig(scale=0.0))
    with pytest.raises(ValueError, match="--num-sentences must be 1 or more, got 0"):
        SummarizationCriterion.check_options(SummarizationCriterionConfig(num_sentences=0))
