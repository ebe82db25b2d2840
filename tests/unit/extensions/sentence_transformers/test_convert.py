"""Folders of sentence-transformers: what is refused, and what is said."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from roberta_plugin.cli.command import with_paths
from roberta_plugin.conversion.huggingface import read_weights
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.hub import RobertaHub
from tests.refusals import refused
from tests.tiny_conversions import exported, new_classifier, new_export
from tests.tiny_predictors import write_predictor

ours = pytest.fixture(new_classifier, scope="module")
theirs = pytest.fixture(new_export)


def start_of(model):
    """What `roberta finetune --model` starts from."""
    return starting_model(with_paths(FinetuneSettings(task="made", model=model, output_dir=Path("out"))).model)


def test_what_is_not_followed_is_said_at_every_start(ours, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    folder = exported(ours, tmp_path / "st", "sentence-transformers").folder
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "prompts": {"query": "query: "}}))
    for start in (1, 2):
        assert start_of(folder).checkpoint.is_relative_to(tmp_path / "assets")
        assert caplog.text.count("has prompts") == start


@pytest.mark.parametrize("kind", ["single", "tagging", "summary", "fill_mask", "pronoun"])
def test_an_export_without_a_head_or_with_one_that_was_not_trained_says_so(tmp_path, kind, caplog):
    ours = write_predictor(tmp_path / "ours", kind, encoder_layers=1)
    has_stale_head = kind not in ("fill_mask", "pronoun")
    hub = RobertaHub.from_pretrained(ours)
    for ask in (hub.fill_mask, hub.fill_mask, lambda text: hub.score(text.replace("<mask>", "it"))):
        ask("so <mask>")
    assert caplog.text.count("The masked-LM head was not trained with this encoder") == has_stale_head
    masks = exported(ours, tmp_path / "masks", head="masked_lm")
    said = "The masked-LM head was not trained with this encoder, which was fine-tuned after it."
    assert list(masks.notes) == [said] * has_stale_head
    card = (masks.folder / "README.md").read_text()
    assert ("not trained with this encoder" in card) == has_stale_head and "fills `<mask>`" in card
    message = r"writes vectors of the encoder, but --head masked_lm is another head: leave it out"
    refused(message, exported, ours, tmp_path / "x", "sentence-transformers", head="masked_lm")
    for to, head in (("huggingface", "encoder"), ("sentence-transformers", None)):
        vectors = exported(ours, tmp_path / to, to, head=head)
        assert "was not trained for vectors: a text has the mean of the last layer" in vectors.notes[-1]
        assert not [name for name in read_weights(vectors.folder) if "head" in name or "classifier" in name]
        config = json.loads((vectors.folder / "config.json").read_text())
        assert config["architectures"] == ["RobertaModel"] and not config.get("fine_tuned_on", {}).get("task")
        again = exported(vectors.folder, tmp_path / "again")  # which had the head that reading had made
        assert again.model.head.name == "encoder"
        assert read_weights(again.folder).keys() == read_weights(vectors.folder).keys()


@pytest.mark.parametrize(
    ("changes", "words", "error"),
    [
        ({"1_Pooling/config.json": None}, "names 1_Pooling, but .*config.json is missing", FileNotFoundError),
        ({"1_Pooling/config.json": {}}, "the pooling is not given", ValueError),
        ({"1_Pooling/config.json": {"word_embedding_dimension": 24, "pooling_mode_cls_token": False}}, "is not given", ValueError),
        ({"1_Pooling/config.json": {"embedding_dimension": 24, "pooling_mode": ["cls", "mean"]}}, "cls and mean", ValueError),
        ({"modules.json": "../1_Pooling"}, r"the part Pooling is in '../1_Pooling', which leads out", ValueError),
        ({"modules.json": "/1_Pooling"}, r"leads out of this folder", ValueError),
        ({"modules.json": "pool"}, r"names pool, but .*pool/config.json is missing", FileNotFoundError),
    ],
)  # fmt: skip
def test_parts_that_modules_json_names_are_read_or_refused(ours, tmp_path, changes, words, error):
    """Each was read as the mean of the features, in silence."""
    folder = exported(ours, tmp_path / "theirs", "sentence-transformers").folder
    for name, content in changes.items():
        if content is None:
            (folder / name).unlink()
        elif isinstance(content, str):
            (folder / name).write_text((folder / name).read_text().replace("1_Pooling", content))
        else:
            (folder / name).write_text(json.dumps(content))
    refused(words, read_any, folder, error=error)


def test_a_missing_mark_of_sentence_transformers_is_named(ours, tmp_path):
    folder = exported(ours, tmp_path / "theirs", "sentence-transformers").folder
    (folder / "config_sentence_transformers.json").unlink()
    assert "prompts for texts, if the model has any, are not known" in read_any(folder).notes[0]
    (folder / "modules.json").write_text('[{"path": "", "type": "sentence_transformers.models.Transformer"}]')
    refused("which says if it is a CrossEncoder, is missing", read_any, folder, error=FileNotFoundError)
