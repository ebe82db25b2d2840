"""Metrics from sums: of a whole validation, whatever the batches and ranks, and shown only when it is whole."""

import math

import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics
from fairseq.logging.meters import MetersDict

from roberta_plugin.criterions import metrics

N = 7


def validate(batches):
    """What fairseq does in a validation: reduce after each batch, within an aggregator of its own and that of all."""
    shown = []
    with fairseq_metrics.aggregate(new_root=True) as whole:
        for outputs in batches:
            with fairseq_metrics.aggregate() as one:
                metrics.log_sum("score", outputs)
                metrics.log_sum("counted", outputs)
                metrics.log_from_sums("largest", lambda sums: float(sums["score"].max()), num_examples=N)
            shown.append(one.get_smoothed_values()["largest"])
    return whole.get_smoothed_values(), shown


def output(index):
    values = torch.tensor([float(i) / 3 for i in index])
    place = torch.tensor(index)
    return {
        "score": metrics.placed(values, place, size=N),
        "counted": metrics.placed(torch.ones(len(index)), place, size=N),
    }


@pytest.mark.parametrize("batches", [[[[4, 1, 0]], [[2, 6]], [[5, 3]]], [[[0, 1, 2, 3], [4, 5, 6]]]])
def test_a_metric_is_that_of_the_whole_validation(batches):
    found, shown = validate([[output(index) for index in ranks] for ranks in batches])
    assert found["largest"] == torch.tensor(6.0 / 3, dtype=torch.float32).double().item()
    assert not {"_score", "_counted", "score", "counted"} & found.keys(), "the sums are not for the log"
    assert all(math.isnan(value) for value in shown) == (len(batches) > 1), "a part was taken for the whole"


def test_sums_of_a_validation_stay_out_of_checkpoints():
    """fairseq keeps what a validation logged, and makes it again by the names of its own meters when a run resumes."""
    with fairseq_metrics.aggregate("valid", new_root=True):
        metrics.log_finetuning_loss([{"loss": 1.0, "sample_size": 1, "ntokens": 1, "npositions": 1}])
        metrics.log_sum("score", [output([0])])
        state = fairseq_metrics.state_dict()["valid"]
    assert {key for _, key, _, _ in state} == {"loss", "padding"}
    MetersDict().load_state_dict(state)


def test_placed_rows_lie_where_they_belong():
    rows = metrics.placed(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2, 0]), size=3)
    assert rows.tolist() == [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    assert rows.dtype == torch.float64


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
