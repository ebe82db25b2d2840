"""The criterion of pretraining, and what all criterions log."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from roberta_plugin.criterions import base
from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.finetuning.training import by_example

VOCAB, PAD = 11, 1


class LogitsModel(torch.nn.Module):
    """Like fairseq's roberta: logits of the predicted positions."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(VOCAB, VOCAB)

    def forward(self, src_tokens, src_lengths, masked_tokens):
        return self.table(src_tokens)[masked_tokens], None


class LossModel(LogitsModel):
    """Like ours: the summed loss of the gathered labels."""

    computes_masked_lm_loss = True

    def training_flops(self, *, num_tokens, num_pairs, num_predicted):
        return 100.0 * num_tokens + 10.0 * num_pairs + num_predicted

    def executed_flops(self, **counts):
        return 0.75 * self.training_flops(**counts)

    def peak_flops(self):
        return 0.0

    def num_compiled_graphs(self):
        return 3

    def forward(self, src_tokens, src_lengths, masked_tokens=None, predicted=None):
        if predicted is None:
            return super().forward(src_tokens, src_lengths, masked_tokens)
        logits = self.table(src_tokens.gather(1, predicted["positions"])).flatten(0, 1)
        return F.cross_entropy(logits, predicted["labels"].flatten(), reduction="sum", ignore_index=PAD), {}


@pytest.fixture
def criterion():
    dictionary = SimpleNamespace(pad=lambda: PAD)
    return RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=dictionary))


@pytest.fixture
def sample():
    tokens = torch.tensor([[0, 4, 5, 6, 2], [0, 7, 8, 2, PAD]])
    target = torch.full_like(tokens, PAD)
    target[0, 1], target[0, 3], target[1, 2] = 9, 6, 4
    net_input = {"src_tokens": tokens, "src_lengths": torch.tensor([5, 4])}
    predicted = {"positions": torch.tensor([[1, 3], [2, 0]]), "labels": torch.tensor([[9, 6], [4, PAD]]), "number": 3}
    numbers = {"ntokens": 9, "npairs": 41, "nsentences": 2}
    return {"net_input": net_input, "target": target, "predicted": predicted, **numbers}


def test_loss_is_the_sum_over_predicted_positions(criterion, sample):
    model = LogitsModel().train()
    loss, sample_size, log = criterion(model, sample)
    rows = model.table.weight.double()[torch.tensor([4, 6, 8])]
    expected = -rows.log_softmax(-1)[torch.arange(3), torch.tensor([9, 6, 4])].sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sample_size == 3 and log["ntokens"] == 9 and log["nsentences"] == 2
    assert "num_correct" not in log
    with pytest.raises(ValueError, match="reduce=True"):
        criterion(LogitsModel(), sample, reduce=False)


def test_both_kinds_of_model_give_the_same_loss_and_gradient(criterion, sample):
    gradients = []
    for model in (LogitsModel().train(), LossModel().train()):
        loss, _, _ = criterion(model, sample)
        loss.backward()
        gradients.append((loss.detach(), model.table.weight.grad))
    assert torch.allclose(gradients[0][0], gradients[1][0])
    assert torch.allclose(gradients[0][1], gradients[1][1])
    assert gradients[0][1].abs().sum() > 0


def test_validation_counts_right_answers(criterion, sample):
    model = LossModel().eval()
    with torch.no_grad():
        model.table.weight[4] = F.one_hot(torch.tensor(9), VOCAB) * 9.0
        model.table.weight[6] = F.one_hot(torch.tensor(2), VOCAB) * 9.0
        model.table.weight[8] = F.one_hot(torch.tensor(4), VOCAB) * 9.0
    _, _, log = criterion(model, sample)
    assert log["num_correct"] == 2 and log["num_counted"] == 3


def test_a_batch_without_predicted_positions_has_zero_loss_and_can_be_trained_on(criterion, sample):
    sample["target"].fill_(PAD)
    sample["predicted"]["labels"].fill_(PAD)
    sample["predicted"]["number"] = 0
    for model in (LogitsModel().train(), LossModel().train()):
        loss, sample_size, _ = criterion(model, sample)
        loss.backward()
        assert loss == 0
        assert sample_size == 0


def test_sums_of_two_ranks_reduce_to_the_mean_of_all(criterion):
    first = {"loss": torch.tensor(30.0), "sample_size": 10, "num_correct": 4, "num_counted": 10}
    second = {"loss": torch.tensor(50.0), "sample_size": 30, "num_correct": 4, "num_counted": 30}
    with metrics.aggregate(new_root=True) as meters:
        criterion.reduce_metrics([first, second])
    values = meters.get_smoothed_values()
    assert values["loss"] == pytest.approx(80 / 40 / math.log(2), abs=1e-3)
    assert values["accuracy"] == pytest.approx(20.0)
    assert values["ppl"] == pytest.approx(math.exp(2.0), rel=1e-2)
    assert criterion.logging_outputs_can_be_summed()


def test_speed_is_logged_for_training_with_the_share_of_the_peak_and_of_waiting(criterion, sample, monkeypatch):
    _, _, log = criterion(LossModel().train(), sample)
    assert log["flops"] == 100 * 9 + 10 * 41 + 3
    assert "flops" not in criterion(LossModel().eval(), sample)[2]

    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    two_ranks = {**log, "flops": 8e12, "executed_flops": 6e12, "peak_flops": 2 * 100e12, "noutputs": 2, "graphs": 6}
    monkeypatch.setattr("roberta_plugin.criterions.base.get_data_parallel_world_size", lambda: 2)
    with metrics.aggregate(new_root=True) as meters:
        for _ in range(4):
            metrics.log_start_time("train_wall")
            clock[0] += 1.5
            metrics.log_stop_time("train_wall", 1)
            criterion.reduce_metrics([two_ranks])
            clock[0] += 0.5
        values = meters.get_smoothed_values()
    assert values["tflops"] == pytest.approx(8 / 2, rel=0.2)
    assert values["mfu"] == pytest.approx(100 * values["tflops"] / 200, abs=0.1)
    assert values["hfu"] == pytest.approx(0.75 * values["mfu"], abs=0.1)
    assert not any(name.startswith("_") for name in values)
    assert 0 <= values["stall"] <= 30
    assert values["graphs"] == 3
    assert values["padding"] == pytest.approx(10.0)


def test_options_are_laid_out_by_example():
    found = by_example(torch.arange(1.0, 8.0), torch.tensor([0, 2, 5, 7]))
    assert found[:, :3].tolist() == [[1, 2, -math.inf], [3, 4, 5], [6, 7, -math.inf]]
    assert found.shape == (3, 5)
    assert (found[:, 3:] == -math.inf).all()


def test_loss_is_a_mean_over_examples_and_padding_a_share_of_positions():
    outputs = [
        {"loss": torch.tensor(6.0), "sample_size": 4, "ntokens": 30, "npositions": 40},
        {"loss": torch.tensor(2.0), "sample_size": 4, "ntokens": 60, "npositions": 60},
    ]
    with metrics.aggregate(new_root=True) as whole:
        base.log_finetuning_loss(outputs)
        base.log_finetuning_loss([])
    assert whole.get_smoothed_values() == {"loss": 1.0, "padding": 10.0}


@pytest.mark.parametrize("log", [base.log_finetuning_loss, base.log_masked_lm])
def test_a_batch_without_anything_to_learn_leaves_the_loss_of_the_others(log):
    """fairseq's trainer enters a loss of -1 after a batch that logs none: as with rows of WSC whose phrase is wrong."""
    batches = [
        {"loss": torch.tensor(value), "sample_size": size, "ntokens": 8, "npositions": 10}
        for value, size in ((6.0, 2), (0.0, 0), (2.0, 1))
    ]
    with metrics.aggregate(new_root=True) as whole:
        for batch in batches:
            with metrics.aggregate() as one:
                log([batch])
            assert "loss" in one
    unit = math.log(2) if log is base.log_masked_lm else 1.0
    assert whole.get_smoothed_values()["loss"] == pytest.approx(8 / 3 / unit, abs=1e-3)
