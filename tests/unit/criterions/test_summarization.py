"""The loss, its gradient and what a training logs, against plain computations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from roberta_plugin.criterions.finetuning import SummarizationCriterion
from roberta_plugin.finetuning.examples_dataset import DocumentsDataset
from roberta_plugin.finetuning.kinds.summary import Summary
from tests.tiny_summaries import write_prepared
from tests.tiny_validation import reduced

pytest.importorskip("rouge_score")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("summaries"))


@pytest.fixture
def dataset(prepared):
    return DocumentsDataset(prepared.split("valid"), pad_id=1, vocab_size=1000, seed=1)


class TableModel(torch.nn.Module):
    """Logits are entries of a table by sentence of the split."""

    def __init__(self, num_sentences, *, seed=0):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(num_sentences, generator=torch.Generator().manual_seed(seed)) * 2)


@pytest.fixture
def criterion(dataset, prepared):
    def outputs(model, sample):
        first = dataset.documents.first
        return torch.cat([model.table[first[number] : first[number + 1]] for number in sample["id"].tolist()])

    kind = Summary(prepared.settings, task_name=prepared.task)
    task = SimpleNamespace(target_dictionary=None, outputs=outputs, prepared=prepared, kind=kind)
    return SummarizationCriterion(task, num_sentences=3, length_share=0.0)


def batches(dataset, size):
    return [dataset.__getitems__(batch) for batch in dataset.batches(1, max_sentences=size)]


def test_loss_and_gradient_are_the_sum_over_sentences_in_float64(criterion, dataset):
    labels = torch.from_numpy(np.array(dataset.documents.labels)).double()
    model = TableModel(len(labels)).train()
    table = model.table.detach().double().requires_grad_()
    probabilities = 1 / (1 + (-table).exp())
    expected = -(labels * probabilities.log() + (1 - labels) * (1 - probabilities).log()).sum()
    expected.backward()
    total, size = 0.0, 0
    for sample in batches(dataset, 5):
        loss, sample_size, log = criterion(model, sample)
        loss.backward()
        total, size = total + loss.item(), size + sample_size
        assert sample_size == log["sample_size"] == len(sample["sentences"]["labels"])
    assert size == len(labels) > 0
    assert total == pytest.approx(expected.item(), rel=1e-6)
    assert torch.allclose(model.table.grad.double(), table.grad, atol=1e-6)
    assert 0 < labels.sum() < len(labels)


def test_training_logs_no_rouge(criterion, dataset):
    model = TableModel(len(dataset.documents.labels)).train()
    found = reduced(criterion, [[criterion(model, sample)[2]] for sample in batches(dataset, 5)])
    assert found["accuracy"] > 0
    assert "rouge" not in found
