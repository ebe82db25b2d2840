"""The loss of tags against a plain computation, one token after the other in float64."""

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.tagging.dataset import TaggingDataset
from roberta_plugin.extensions.tagging.kind import Tagging
from tests import tiny_tagging
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
