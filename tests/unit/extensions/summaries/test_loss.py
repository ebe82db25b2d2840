"""The loss of sentences against a plain computation, one document after the other in float64."""

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
from roberta_plugin.extensions.summaries.kind import Summary
from tests import tiny_summaries
from tests.plain_losses import batches, check_loss, task_of


class SentenceLogits(torch.nn.Module):
    """Logits are entries of a table by sentence of the split."""

    def __init__(self, num_sentences):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(num_sentences, generator=torch.Generator().manual_seed(0)) * 2)


def test_each_sentence_of_a_document_has_a_binary_cross_entropy(tmp_path):
    pytest.importorskip("rouge_score")
    prepared = tiny_summaries.write_prepared(tmp_path)
    dataset = DocumentsDataset(prepared.split("valid"), pad_id=1, vocab_size=1000, seed=1)
    first, labels = dataset.documents.first, torch.from_numpy(np.array(dataset.documents.labels)).double()

    def outputs(model, sample):
        return torch.cat([model.table[first[number] : first[number + 1]] for number in sample["id"].tolist()])

    def plain(model):
        probabilities = 1 / (1 + (-model.table.double()).exp())
        return -(labels * probabilities.log() + (1 - labels) * (1 - probabilities).log()).sum()

    task = task_of(Summary(prepared.settings, task_name=prepared.task), prepared, outputs)
    criterion = CRITERION_REGISTRY["roberta_summarization"](task, num_sentences=3, length_share=0.0)
    model = SentenceLogits(len(labels))
    _, values = check_loss(criterion, model, batches(dataset), plain, number=len(labels))
    assert 0 < labels.sum() < len(labels)
    right = (model.table > 0) == labels.bool()
    assert values["accuracy"] == pytest.approx(100 * right.double().mean().item(), abs=1e-3) and "rouge" not in values
