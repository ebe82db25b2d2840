"""The two losses, their gradients, best spans and official metrics against plain computations."""

from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.criterions.finetuning import Squad2Criterion
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds.metrics import squad_metrics
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.question_answering import QuestionAnswering
from roberta_plugin.finetuning.kinds.questions import Questions, decode
from roberta_plugin.models.heads import SpanLogits
from tests.tiny_squad import write_prepared
from tests.tiny_validation import reduced, validated


class TableModel(torch.nn.Module):
    """Scores are entries of tables by window and position."""

    def __init__(self, num_windows, *, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.start, self.end = (
            torch.nn.Parameter(torch.randn(num_windows, 40, generator=generator) * 3) for _ in range(2)
        )
        self.answerable = torch.nn.Parameter(torch.randn(num_windows, generator=generator) * 2)

    def scores(self, windows, width):
        return SpanLogits(self.start[windows, :width], self.end[windows, :width], self.answerable[windows])


@pytest.fixture(scope="module", params=["squad1", "squad2"])
def prepared(request, tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp(request.param), task=request.param)


@pytest.fixture
def split(prepared):
    return prepared.split("valid")


@pytest.fixture
def criterion(prepared):
    task = SimpleNamespace(
        target_dictionary=None,
        prepared=prepared,
        kind=QuestionAnswering({}, task_name=prepared.task),
        outputs=lambda model, sample: model.scores(sample["id"], sample["net_input"]["src_tokens"].size(1)),
    )
    return Squad2Criterion(task, max_answer_length=4)


def batches(split, size):
    dataset = ExamplesDataset(split, pad_id=1, vocab_size=1000, seed=1)
    return [dataset.__getitems__(batch) for batch in dataset.batches(1, max_sentences=size)]


def plain_loss(model, split):
    """float64, one window after the other."""
    total = torch.zeros((), dtype=torch.float64)
    columns = {name: values.tolist() for name, values in split.columns.items()}
    for window in range(len(split)):
        first = columns["passage"][window]
        part = slice(first, first + columns["passage_length"][window])
        has_answer = columns["has_answer"][window]
        if has_answer:
            for table, target in ((model.start, "start"), (model.end, "end")):
                total = total - 0.5 * table[window, part].double().log_softmax(0)[columns[target][window] - first]
        probability = torch.sigmoid(model.answerable[window].double())
        total = total - (probability if has_answer else 1 - probability).log()
    return total


def test_loss_and_gradients_are_those_of_each_window_alone(criterion, split):
    model = TableModel(len(split)).train()
    expected = plain_loss(model, split)
    expected.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    total = 0.0
    for sample in batches(split, 5):
        loss, sample_size, log = criterion(model, sample)
        loss.backward()
        total += loss.item()
        assert sample_size == log["sample_size"] == len(sample["id"])
        assert log["sum_of_span_loss"] + log["sum_of_answerable_loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert total == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)
        assert gradient.abs().sum() > 0.1
    assert 0 < split.columns["has_answer"].sum() < len(split)


@pytest.mark.parametrize("seed", range(4))
def test_validation_gives_the_official_metrics_of_the_decoded_answers(criterion, split, prepared, seed):
    model = TableModel(len(split), seed=seed)
    found = validated(criterion, model, batches(split, 5))
    sizes = split.sequences.sizes
    outputs = RawOutputs(
        start_logits=[model.start[window, : sizes[window]].detach().numpy() for window in range(len(split))],
        end_logits=[model.end[window, : sizes[window]].detach().numpy() for window in range(len(split))],
        answerable_logits=model.answerable.detach().numpy(),
    )
    questions = Questions(split)
    decoded = decode(questions, [outputs], max_answer_length=4)
    best = [given.candidates[0].text for given in decoded]
    null = [given.null_probability for given in decoded]
    if prepared.task == "squad2":
        tuned = squad_metrics("squad2", questions.answers, best, null)
        assert found["tuned_f1"] == pytest.approx(tuned["best_f1"])
        assert found["tuned_exact"] == pytest.approx(tuned["best_exact"])
        best = ["" if probability > 0.5 else text for text, probability in zip(best, null, strict=True)]
        assert 0 < best.count("") < len(best)
    else:
        assert "tuned_f1" not in found
    expected = squad_metrics(prepared.task, questions.answers, best)
    assert (found["exact"], found["f1"]) == pytest.approx((expected["exact"], expected["f1"]))


def test_losses_are_means_over_windows(criterion, split):
    model = TableModel(len(split)).train()
    logs = [criterion(model, sample)[2] for sample in batches(split, 5)]
    values = reduced(criterion, [logs])
    with_answer = int(split.columns["has_answer"].sum())
    assert values["loss"] == pytest.approx(plain_loss(model, split).item() / len(split), abs=1e-4)
    assert values["loss"] == pytest.approx(
        values["span_loss"] * with_answer / len(split) + values["answerable_loss"], abs=1e-3
    )
    assert "f1" not in values
