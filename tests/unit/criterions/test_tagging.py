"""The loss and its gradients against plain computations, whatever the batches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from roberta_plugin.criterions.finetuning import RobertaTaggingCriterion
from roberta_plugin.finetuning.examples_dataset import TaggingDataset
from roberta_plugin.finetuning.kinds.tagging import Tagging
from tests.tiny_tagging import write_prepared, write_raw
from tests.tiny_validation import reduced


class TableModel(torch.nn.Module):
    """Logits are entries of a table by window and position."""

    def __init__(self, split, num_labels, *, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(len(split), 40, num_labels, generator=generator)
        for window, labels in enumerate(labels_of(split)):
            for position in np.flatnonzero(labels >= 0).tolist():
                table[window, position, labels[position]] += 1.5
        self.table = torch.nn.Parameter(table)

    def logits(self, sample):
        tokens, lengths = sample["net_input"]["src_tokens"], sample["net_input"]["src_lengths"].tolist()
        if "packing" in sample["net_input"]:
            rows = [self.table[window, :length] for window, length in zip(sample["id"], lengths, strict=True)]
            packed = torch.cat(rows)
            return torch.cat([packed, packed.new_zeros(tokens.size(1) - len(packed), packed.size(1))])[None]
        return self.table[sample["id"], : tokens.size(1)]


def labels_of(split):
    return np.split(np.asarray(split.array("token_labels")), np.cumsum(split.sequences.sizes)[:-1])


@pytest.fixture(scope="module", params=["sentence", "document", "plain"])
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = write_raw(folder / "raw")
    options = {"scheme": "plain"} if request.param == "plain" else {"context": request.param}
    for path in raw.iterdir():
        blocks = path.read_text().split("\n\n")
        path.write_text(
            "\n\n".join(
                ("-DOCSTART- X O\n\n" if number % 4 == 0 else "") + block for number, block in enumerate(blocks)
            )
        )
    return write_prepared(folder, raw=raw, label_pieces="all" if request.param == "document" else "first", **options)


@pytest.fixture
def split(prepared):
    return prepared.split("valid")


@pytest.fixture
def criterion(prepared):
    labels = prepared.settings["labels"]
    task = SimpleNamespace(
        target_dictionary=None,
        prepared=prepared,
        kind=Tagging({"labels": labels}),
        outputs=lambda model, sample: model.logits(sample),
    )
    return RobertaTaggingCriterion(task)


def model_of(prepared, split, **options):
    return TableModel(split, len(prepared.settings["labels"]), **options)


def batches(split, size, *, pack=False):
    dataset = TaggingDataset(split, pad_id=1, vocab_size=1000, seed=1, pack=pack, pad_to_multiple=8, max_length=24)
    return [dataset.__getitems__(batch) for batch in dataset.batches(1, max_sentences=size)]


def plain_loss(model, split, *, smoothing=0.0):
    """float64, one token after the other: the sum, and the number of labels."""
    total, number = torch.zeros((), dtype=torch.float64), 0
    for window, labels in enumerate(labels_of(split)):
        for position in np.flatnonzero(labels >= 0).tolist():
            logs = model.table[window, position].double().log_softmax(0)
            total = total - (1 - smoothing) * logs[int(labels[position])] - smoothing * logs.mean()
            number += 1
    return total, number


@pytest.mark.parametrize(("pack", "smoothing"), [(False, 0.0), (True, 0.0), (True, 0.3)])
def test_loss_and_gradients_are_those_of_each_token_alone(criterion, prepared, split, pack, smoothing):
    model = model_of(prepared, split).train()
    criterion.label_smoothing = smoothing
    expected, number = plain_loss(model, split, smoothing=smoothing)
    expected.backward()
    gradient = model.table.grad.clone()
    model.zero_grad()
    total = num_labels = 0
    for sample in batches(split, 5, pack=pack):
        loss, sample_size, log = criterion(model, sample)
        loss.backward()
        total, num_labels = total + loss.item(), num_labels + sample_size
        assert sample_size == log["sample_size"]
    assert num_labels == number
    assert total == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(model.table.grad, gradient, atol=1e-5, rtol=1e-5)
    assert gradient.abs().sum() > 1


def test_the_loss_is_a_mean_over_labelled_tokens(criterion, prepared, split):
    model = model_of(prepared, split).train()
    values = reduced(criterion, [[criterion(model, sample)[2] for sample in batches(split, 5)]])
    total, number = plain_loss(model, split)
    assert values["loss"] == pytest.approx(total.item() / number, abs=1e-4)
    assert "f1" not in values and "accuracy" not in values
