"""Heads of a checkpoint on the way between formats."""

from pathlib import Path

import pytest
import torch

from roberta_plugin.conversion import portable
from roberta_plugin.conversion.portable import rescale_to_labels, rescale_to_training
from roberta_plugin.finetuning import identity

NAME = "classification_heads.mine.out_proj."
SETTINGS = {"kind": "regression", "labels": [], "mean": 1500.0, "deviation": 200.0}


def state(**changes):
    model = {NAME + "weight": torch.randn(1, 4), NAME + "bias": torch.randn(1), "encoder.x": torch.randn(2)}
    data = {"task": "made", "settings": {**SETTINGS, **changes}}
    return {
        "model": model,
        "cfg": {"task": {"_name": "roberta_sentence_prediction", "classification_head_name": "mine"}},
        "task_state": {identity.KEY: data},
    }


def test_other_heads_are_as_they_are():
    before = state(kind="made")
    assert rescale_to_labels(before)["model"] is before["model"]
    assert rescale_to_training(before, {"kind": "made"})["model"] is before["model"]


def test_without_a_kind_of_vectors_an_encoder_alone_is_refused_and_heads_are_found(monkeypatch):
    kinds = {name: kind for name, kind in portable.formats().items() if kind.head}
    monkeypatch.setattr(portable, "formats", lambda: kinds)
    with pytest.raises(ValueError, match="no extension with a kind of task for them is installed"):
        portable.encoder_alone()
    pretrained = {"model": {"encoder.lm_head.bias": torch.zeros(3)}, "cfg": {"task": {}, "model": {}}}
    assert portable.choose_head(pretrained, "masked_lm", Path("model.pt")).kind == portable.MASKED_LM
