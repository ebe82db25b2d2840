"""Outputs of a whole split: in its order, whatever the batches, and each sequence's own."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from roberta_plugin.experiments.inference import load_state, run_model
from roberta_plugin.models.heads import SpanLogits
from tests.tiny_benchmarks import write_prepared


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", num_examples=30).split("valid")


class Sums(torch.nn.Module):
    """The score of a token is its id; that of a sequence, the sum of its ids."""

    def forward(self, tokens):
        return tokens.masked_fill(tokens.eq(1), 0).float()


def task_of(kind):
    def outputs(model, sample):
        values = model(sample["net_input"]["src_tokens"])
        if kind == "spans":
            return SpanLogits(values, -values, values.sum(dim=1))
        return torch.stack([values.sum(dim=1), -values.sum(dim=1)], dim=1)

    vocabulary = type("Vocabulary", (), {"pad_id": 1, "__len__": lambda self: 300})()
    return Namespace(vocabulary=vocabulary, outputs=outputs)


@pytest.mark.parametrize("max_tokens", [1, 200, 100_000])
@pytest.mark.parametrize("kind", ["scores", "spans"])
def test_every_sequence_has_its_own_outputs(split, kind, max_tokens):
    task = task_of(kind)
    found = run_model(Sums(), task, split, max_tokens=max_tokens)
    expected = [split.sequences[number] for number in range(len(split.sequences))]
    assert len(expected) > 40
    if kind == "scores":
        sums = np.array([int(ids.sum()) for ids in expected])
        assert found.logits.tolist() == np.stack([sums, -sums], axis=1).tolist()
        return
    assert found.logits is None
    assert found.answerable_logits.tolist() == [ids.sum() for ids in expected]
    for ids, starts, ends in zip(expected, found.start_logits, found.end_logits, strict=True):
        assert starts.tolist() == ids.tolist()
        assert ends.tolist() == (-ids.astype(int)).tolist()


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*model\.pt: give the path of a \.pt file"):
        load_state(tmp_path / "model.pt")


def test_what_is_not_a_checkpoint_is_named(tmp_path):
    torch.save({"encoder.weight": torch.zeros(2)}, tmp_path / "hugging_face.bin")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "junk.pt").write_text("hello")
    content = (tmp_path / "hugging_face.bin").read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: len(content) // 2])
    for name in ("hugging_face.bin", "empty.pt", "junk.pt", "cut.pt"):
        with pytest.raises(ValueError, match=rf"{name} .*Give a .pt file that fairseq-train wrote"):
            load_state(tmp_path / name)
