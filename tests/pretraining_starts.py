"""What tests of a pretraining that goes on from a model begin with."""

from __future__ import annotations

from pathlib import Path

from roberta_plugin.pretraining.start import Start, find_start
from tests.tiny_conversions import write_checkpoint


def assets_of_test(tmp_path, monkeypatch):
    """A fixture: imports go into a cache of the test."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))


def new_unlike_recipes(tmp_path):
    """A fixture: a model that departs from recipes in all that they set, and from RoBERTa in its epsilon."""
    return write_checkpoint(tmp_path / "ours", layer_norm_eps=1e-12)


def started(path: Path, folder: Path, *further: str) -> Start:
    """What a pretraining in this folder goes on from."""
    return find_start(["--finetune-from-model", str(path), *further], folder)
