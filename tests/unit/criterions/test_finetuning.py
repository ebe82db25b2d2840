"""Losses of spans, tags and sentences against plain computations, one item after the other in float64.

Those of texts are in test_sentence_prediction.py, those of vectors in test_embedding.py.
"""

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
from roberta_plugin.extensions.summaries.kind import Summary
from roberta_plugin.extensions.tagging.dataset import TaggingDataset
from roberta_plugin.extensions.tagging.kind import Tagging
from tests import tiny_summaries, tiny_tagging
from tests.plain_losses import batches, check_loss, task_of


class TokenLogits(torch.nn.Module):
    """Logits are entries of a table by window and position; those of the right labels are higher."""

    def __init__(self, labels, num_labels):
        super().__init__()
        table = torch.randn(len(labels), 40, num_labels, generator=torch.Generator().manual_seed(0))
        for window, position in places(labels):
            table[window, position, labels[window][position]] += 1.5
        self.table = torch.nn.Parameter(table)

    def logits(self, sample):
        tokens, lengths = sample["net_input"]["src_tokens"], sample["net_input"]["src_lengths"].tolist()
        if "packing" in sample["net_input"]:
            rows = [self.table[window, :length] for window, length in zip(sample["id"], lengths, strict=True)]
            packed = torch.cat(rows)
            return torch.cat([packed, packed.new_zeros(tokens.size(1) - len(packed), packed.size(1))])[None]
        return self.table[sample["id"], : tokens.size(1)]


def places(labels):
    """Window and position of each label."""
    return [(window, at) for window, each in enumerate(labels) for at in np.flatnonzero(each >= 0).tolist()]


@pytest.fixture(scope="module", params=["sentence", "document", "plain"])
def tagging(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = tiny_tagging.write_raw(folder / "raw")
    for path in raw.iterdir():
        blocks = path.read_text().split("\n\n")
        marks = ["-DOCSTART- X O\n\n" if number % 4 == 0 else "" for number in range(len(blocks))]
        path.write_text("\n\n".join(mark + block for mark, block in zip(marks, blocks, strict=True)))
    options = {"scheme": "plain"} if request.param == "plain" else {"context": request.param}
    options["label_pieces"] = "all" if request.param == "document" else "first"
    return tiny_tagging.write_prepared(folder, raw=raw, **options)


@pytest.mark.parametrize(("pack", "smoothing"), [(False, 0.0), (True, 0.0), (True, 0.3)])
def test_each_labelled_token_has_a_cross_entropy(tagging, pack, smoothing):
    split, names = tagging.split("valid"), tagging.settings["labels"]
    task = task_of(Tagging({"labels": names}), tagging, lambda model, sample: model.logits(sample))
    criterion = CRITERION_REGISTRY["roberta_tagging"](task)
    criterion.label_smoothing = smoothing
    labels = np.split(np.asarray(split.array("token_labels")), np.cumsum(split.sequences.sizes)[:-1])

    def plain(model):
        total = torch.zeros((), dtype=torch.float64)
        for window, position in places(labels):
            logs = model.table[window, position].double().log_softmax(0)
            total = total - (1 - smoothing) * logs[int(labels[window][position])] - smoothing * logs.mean()
        return total

    dataset = TaggingDataset(split, pad_id=1, vocab_size=1000, seed=1, pack=pack, pad_to_multiple=8, max_length=24)
    model = TokenLogits(labels, len(names))
    _, values = check_loss(criterion, model, batches(dataset), plain, number=len(places(labels)))
    assert "f1" not in values and "accuracy" not in values


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
