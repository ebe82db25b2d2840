"""The multiple-choice loss, its gradients and its counts against a plain computation, a question at a time."""

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from roberta_plugin.criterions.race import RaceCriterion
from roberta_plugin.tasks.finetuning import FineTuningTask

HEAD = "choice"


class TableModel(torch.nn.Module):
    """The score of a sequence is an entry of a table, by its second token; more rows follow, as for a packed row."""

    def __init__(self, extra_rows=0):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(50, 1)
        self.extra_rows = extra_rows

    def forward(self, src_tokens, src_lengths, features_only, classification_head_name):
        assert features_only
        assert classification_head_name == HEAD
        scores = self.table(src_tokens[:, 1])
        return torch.cat([scores, scores.new_full((self.extra_rows, 1), 99.0)]), {}


@pytest.fixture
def criterion():
    arguments = {"features_only": True, "classification_head_name": HEAD}
    kind = SimpleNamespace(window_pooling=None)
    task = SimpleNamespace(target_dictionary=None, head_arguments=arguments, kind=kind)
    task.outputs = partial(FineTuningTask.outputs, task)
    return RaceCriterion(task)


def make_sample(counts, *, seed=0, levels=None):
    generator = torch.Generator().manual_seed(seed)
    number = sum(counts)
    tokens = torch.randint(4, 50, (number, 3), generator=generator)
    first = torch.tensor([0, *itertools.accumulate(counts)])
    labels = torch.tensor([int(torch.randint(count, (), generator=generator)) for count in counts])
    levels = torch.tensor(levels or [-1] * len(counts))
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": torch.full((number,), 3)},
        "offsets": first,
        "columns": {"label": labels, "level": levels},
        "nsentences": len(counts),
        "ntokens": 3 * number - 2,
        "npositions": 3 * number,
    }


def plain_loss(model, sample, *, smoothing=0.0):
    """float64, by torch, one question after the other."""
    table = model.table.weight.detach().double().requires_grad_()
    scores = table[sample["net_input"]["src_tokens"][:, 1], 0]
    first = sample["offsets"].tolist()
    losses = [
        F.cross_entropy(scores[start:stop], torch.tensor(label), label_smoothing=smoothing)
        for start, stop, label in zip(first, first[1:], sample["columns"]["label"].tolist(), strict=False)
    ]
    loss = torch.stack(losses).sum()
    loss.backward()
    right = [
        int(scores[start:stop].argmax()) == label
        for start, stop, label in zip(first, first[1:], sample["columns"]["label"].tolist(), strict=False)
    ]
    return loss.item(), table.grad, right


@pytest.mark.parametrize("counts", [[4] * 6, [2, 5, 3, 3, 7, 2], [9], [2, 2, 30]])
@pytest.mark.parametrize(("extra_rows", "smoothing"), [(0, 0.0), (1, 0.0), (1, 0.2)])
def test_loss_and_gradients_are_those_of_each_question_alone(criterion, counts, extra_rows, smoothing):
    model, sample = TableModel(extra_rows).train(), make_sample(counts)
    criterion.label_smoothing = smoothing
    loss, sample_size, log = criterion(model, sample)
    loss.backward()
    expected, gradient, right = plain_loss(model, sample, smoothing=smoothing)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert torch.allclose(model.table.weight.grad.double(), gradient, rtol=1e-5, atol=1e-7)
    assert gradient.abs().sum() > 0.1
    assert sample_size == len(counts)
    assert log["num_correct"] == sum(right)
    assert log["num_counted"] == len(counts)


def test_half_precision_scores_lose_nothing_in_the_softmax(criterion):
    model, sample = TableModel().to(torch.bfloat16).train(), make_sample([4] * 8)
    loss, _, _ = criterion(model, sample)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(plain_loss(model, sample)[0], rel=1e-6)


def test_validation_logs_the_levels(criterion):
    sample = make_sample([4, 4, 3, 2], levels=[0, 1, 1, 0])
    training = criterion(TableModel().train(), sample)[2]
    assert "num_counted_high" not in training
    model = TableModel().eval()
    validation = criterion(model, sample)[2]
    _, _, right = plain_loss(model, sample)
    assert (validation["num_counted_middle"], validation["num_counted_high"]) == (2, 2)
    assert validation["num_correct_middle"] == right[0] + right[3]
    assert validation["num_correct_high"] == right[1] + right[2]


def log_of(correct, counted, **more):
    sums = {"loss": torch.tensor(1.5 * counted), "sample_size": counted, "ntokens": 80, "npositions": 100}
    return {**sums, "num_correct": torch.tensor(correct), "num_counted": counted, **more}


def reduced(criterion, batches):
    with metrics.aggregate(new_root=True) as meters:
        for outputs in batches:
            criterion.reduce_metrics(outputs)
    return meters.get_smoothed_values()


def test_accuracies_are_exact_over_all_batches_and_ranks(criterion):
    levels = {"num_correct_middle": torch.tensor(1), "num_counted_middle": torch.tensor(3)}
    levels |= {"num_correct_high": torch.tensor(0), "num_counted_high": torch.tensor(0)}
    batches = [[log_of(1, 3, **levels), log_of(2, 4)], [log_of(3, 6, **levels)]]
    values = reduced(criterion, batches)
    assert values["accuracy"] == 100 * 6 / 13
    assert values["accuracy_middle"] == 100 * 2 / 6
    assert "accuracy_high" not in values, "no question of this level has been seen"
    assert values["loss"] == pytest.approx(1.5)
    assert values["padding"] == pytest.approx(20.0)
    assert not any(name.startswith("_") for name in values)
    assert criterion.logging_outputs_can_be_summed()
    summed = [[{key: sum(one.get(key, 0) for one in outputs) for key in outputs[0]}] for outputs in batches]
    assert reduced(criterion, summed) == values


def test_a_batch_that_does_not_count_changes_nothing(criterion):
    nothing = {key: value * 0 for key, value in log_of(1, 3).items()}
    assert reduced(criterion, [[log_of(1, 3), nothing]])["accuracy"] == 100 / 3
    assert "accuracy" not in reduced(criterion, [[nothing]])


def test_only_the_summed_loss_exists(criterion):
    with pytest.raises(ValueError, match="reduce=True"):
        criterion(TableModel(), make_sample([2]), reduce=False)
