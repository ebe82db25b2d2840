"""Folders of sentence-transformers by name."""

from pathlib import Path

import pytest
import torch

from roberta_plugin.conversion import named_models
from roberta_plugin.hub import RobertaHub
from tests.hub_server import empty_hub
from tests.tiny_conversions import exported, new_masked_lm, new_shards, opened

hub = pytest.fixture(empty_hub)
ours = pytest.fixture(new_masked_lm, scope="module")
theirs = pytest.fixture(new_shards, scope="module")


def test_a_folder_of_sentence_transformers_and_one_with_tokenizer_json_alone_are_whole(hub, ours, tmp_path):
    folder = exported(ours, tmp_path / "sentences", "sentence-transformers").folder
    for name in ("vocab.json", "merges.txt", "special_tokens_map.json"):
        (folder / name).unlink()
    hub.add("org/sentences", folder)
    by_name, by_path = RobertaHub.from_pretrained("org/sentences"), RobertaHub.from_pretrained(folder)
    assert by_name.trained_on["settings"]["pooling"] == "mean"
    assert by_name.trained_on == by_path.trained_on
    assert torch.equal(by_name.embed(["good or bad"]), by_path.embed(["good or bad"]))


def test_what_indexes_name_is_fetched_whatever_it_is_called(hub, ours, theirs, tmp_path):
    """A Pooling part in a folder `pool` was left behind, and the mean of the features was taken instead, in silence."""
    folder = exported(ours, tmp_path / "sentences", "sentence-transformers").folder
    (folder / "1_Pooling").rename(folder / "pool")
    modules = (folder / "modules.json").read_text().replace("1_Pooling", "pool")
    (folder / "modules.json").write_text(modules)
    (folder / "pool" / "config.json").write_text('{"word_embedding_dimension": 24, "pooling_mode_cls_token": true}')
    hub.add("org/pool", folder)
    assert RobertaHub.from_pretrained("org/pool").trained_on["settings"]["pooling"] == "first"
    before = named_models.sha256_of(folder)
    (folder / "pool" / "config.json").write_text('{"word_embedding_dimension": 24, "pooling_mode": "max"}')
    assert named_models.sha256_of(folder) != before  # or an earlier import would be taken
    files = {path.relative_to(theirs).as_posix(): path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    renamed = {name.replace("model-0", "part-0"): data.replace(b"model-0", b"part-0") for name, data in files.items()}
    hub.add("org/parts", renamed)
    assert torch.equal(opened(Path("org/parts")).encoder.lm_head.bias, opened(theirs).encoder.lm_head.bias)
