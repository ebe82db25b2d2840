"""The multiple-choice loss, its gradients and its counts against a plain computation, a question at a time."""

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.criterions.finetuning import RaceCriterion
from roberta_plugin.finetuning.kinds.multiple_choice import MultipleChoice
from roberta_plugin.tasks.finetuning import FineTuningTask
from tests.tiny_validation import reduced

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
    kind = MultipleChoice({}, task_name="race")
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
        "id": torch.arange(len(counts)),
        "split": "valid",
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
    assert (log["sum_of_accuracy"], log["number_of_accuracy"]) == (100 * sum(right), len(counts))


def test_half_precision_scores_lose_nothing_in_the_softmax(criterion):
    model, sample = TableModel().to(torch.bfloat16).train(), make_sample([4] * 8)
    loss, _, _ = criterion(model, sample)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(plain_loss(model, sample)[0], rel=1e-6)


def test_the_accuracy_of_training_is_that_of_all_batches_and_ranks(criterion):
    model, samples = (
        TableModel().train(),
        [make_sample([4] * 3), make_sample([3] * 5, seed=1), make_sample([2], seed=2)],
    )
    logs = [criterion(model, sample)[2] for sample in samples]
    right = [each for sample in samples for each in plain_loss(model, sample)[2]]
    nothing = {key: value * 0 for key, value in logs[0].items()}
    for batches in (
        [logs[:2], logs[2:]],
        [[{key: logs[0][key] + logs[1][key] for key in nothing}], [logs[2], nothing]],
    ):
        values = reduced(criterion, batches)
        assert values["accuracy"] == pytest.approx(100 * sum(right) / 9, rel=1e-6)
    assert "accuracy" not in reduced(criterion, [[nothing]])
