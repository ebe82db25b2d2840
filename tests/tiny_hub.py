"""A small `RobertaHub`, and arguments of other types for its methods."""

import pytest
import torch

from roberta_plugin.hub import RobertaHub
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of

PIECES = ["good bad good", "bad", "good good bad bad good", "a b c d", "bad good"]
STRANGE = [b"good <mask>", 5.5, [None], [float("nan")], [[]], [["good", None]], {"good": 1}, {"good"}, ["a \ud800"]]
STRANGE += [[0, 99999, 2], torch.tensor([0.0, 2.0]), torch.tensor([0, 999]), torch.zeros(1, 1, 3, dtype=torch.int64)]


def write_hub(folder, **switches):
    """A model with a head of three classes, called task."""
    write_tokenizer(folder)
    torch.save(state_of(folder, heads={"task": 3}, **switches), folder / "model.pt")
    return RobertaHub.from_pretrained(folder)


def check_refusals(hub, call):
    """Check that arguments of other types are refused in a sentence."""
    for value in STRANGE:
        with pytest.raises(ValueError, match=r", got |, found |must be|holds half|has no head|cannot be called"):
            call(hub, value)
