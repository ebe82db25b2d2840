"""The loss of options against a plain computation, one question after the other in float64."""

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.choices.kind import MultipleChoice
from roberta_plugin.tasks.finetuning import FineTuningTask
from tests.plain_losses import check_loss, task_of
from tests.tiny_validation import reduced


class OptionScores(torch.nn.Module):
    """The score of a sequence is an entry of a table, by its second token; more rows follow, as for a packed row."""

    def __init__(self, extra_rows=0):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(50, 1)
        self.extra_rows = extra_rows

    def forward(self, src_tokens, src_lengths, features_only, classification_head_name):
        assert features_only and classification_head_name == "choice"
        scores = self.table(src_tokens[:, 1])
        return torch.cat([scores, scores.new_full((self.extra_rows, 1), 99.0)]), {}


@pytest.fixture
def of_options():
    task = task_of(MultipleChoice({}, task_name="race"))
    task.training.cfg = SimpleNamespace(classification_head_name="choice")
    task.outputs = partial(FineTuningTask.outputs, task)
    return CRITERION_REGISTRY["race"](task)


def questions_of(*counts, seed=0):
    """A batch of questions with these numbers of options."""
    generator, number = torch.Generator().manual_seed(seed), sum(counts)
    labels = torch.tensor([int(torch.randint(count, (), generator=generator)) for count in counts])
    tokens = torch.randint(4, 50, (number, 3), generator=generator)
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": torch.full((number,), 3)},
        "offsets": torch.tensor([0, *itertools.accumulate(counts)]),
        "columns": {"label": labels, "level": torch.full((len(counts),), -1)},
        "id": torch.arange(len(counts)),
        "split": "valid",
        "nsentences": len(counts),
        "ntokens": 3 * number - 2,
        "npositions": 3 * number,
    }


def options_by_hand(sample):
    """Of each question the score of each option, and its label."""
    edges = itertools.pairwise(sample["offsets"].tolist())
    tokens = [sample["net_input"]["src_tokens"][start:stop, 1] for start, stop in edges]
    return lambda model: zip(
        [model.table.weight.double()[each, 0] for each in tokens], sample["columns"]["label"], strict=True
    )


def is_right(model, sample):
    return [int(scores.argmax()) == int(label) for scores, label in options_by_hand(sample)(model)]


@pytest.mark.parametrize("counts", [[4] * 6, [2, 5, 3, 3, 7, 2], [9], [2, 2, 30]])
@pytest.mark.parametrize(("extra_rows", "smoothing"), [(0, 0.0), (1, 0.0), (1, 0.2)])
def test_options_of_a_question_compete(of_options, counts, extra_rows, smoothing):
    model, sample = OptionScores(extra_rows), questions_of(*counts)
    of_options.label_smoothing = smoothing

    def plain(model):
        questions = options_by_hand(sample)(model)
        return sum(F.cross_entropy(scores, label, label_smoothing=smoothing) for scores, label in questions)

    (log,), _ = check_loss(of_options, model, [sample], plain, number=len(counts))
    right = sum(is_right(model, sample))
    assert (log["sum_of_accuracy"], log["number_of_accuracy"]) == (100 * right, len(counts))


def test_half_precision_scores_lose_nothing_in_the_softmax(of_options):
    model, sample = OptionScores().to(torch.bfloat16).train(), questions_of(*[4] * 8)
    loss, _, _ = of_options(model, sample)
    assert loss.dtype == torch.float32
    plain = sum(F.cross_entropy(scores, label) for scores, label in options_by_hand(sample)(model))
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)


def test_the_accuracy_of_training_is_that_of_all_batches_and_ranks(of_options):
    model = OptionScores().train()
    samples = [questions_of(4, 4, 4), questions_of(*[3] * 5, seed=1), questions_of(2, seed=2)]
    first, second, third = (of_options(model, sample)[2] for sample in samples)
    right = sum(sum(is_right(model, sample)) for sample in samples)
    nothing = {key: value * 0 for key, value in first.items()}
    both = {key: first[key] + second[key] for key in first}
    for logs in ([[first, second], [third]], [[both], [third, nothing]]):
        assert reduced(of_options, logs)["accuracy"] == pytest.approx(100 * right / 9, rel=1e-6)
    assert "accuracy" not in reduced(of_options, [[nothing]])
