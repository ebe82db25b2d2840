"""The figures of the log from sums of batches and ranks."""

import math

import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics

from roberta_plugin.criterions import metrics


def test_loss_is_a_mean_over_examples_and_padding_a_share_of_positions():
    outputs = [
        {"loss": torch.tensor(6.0), "sample_size": 4, "ntokens": 30, "npositions": 40},
        {"loss": torch.tensor(2.0), "sample_size": 4, "ntokens": 60, "npositions": 60},
    ]
    with fairseq_metrics.aggregate(new_root=True) as whole:
        metrics.log_finetuning_loss(outputs)
        metrics.log_finetuning_loss([])
    assert whole.get_smoothed_values() == {"loss": 1.0, "padding": 10.0}


@pytest.mark.parametrize("log", [metrics.log_finetuning_loss, metrics.log_masked_lm])
def test_a_batch_without_anything_to_learn_leaves_the_loss_of_the_others(log):
    """fairseq's trainer enters a loss of -1 after a batch that logs none: as with rows of WSC whose phrase is wrong."""
    batches = [
        {"loss": torch.tensor(value), "sample_size": size, "ntokens": 8, "npositions": 10}
        for value, size in ((6.0, 2), (0.0, 0), (2.0, 1))
    ]
    with fairseq_metrics.aggregate(new_root=True) as whole:
        for batch in batches:
            with fairseq_metrics.aggregate() as one:
                log([batch])
            assert "loss" in one
    unit = math.log(2) if log is metrics.log_masked_lm else 1.0
    assert whole.get_smoothed_values()["loss"] == pytest.approx(8 / 3 / unit, abs=1e-3)
