"""Exports and imports of models with classes."""

import json

import pytest
import yaml

from roberta_plugin.cli import main
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.hub import RobertaHub
from tests.refusals import refused
from tests.tiny_conversions import exported, imported, new_classifier, new_export, opened

ours = pytest.fixture(new_classifier, scope="module")
theirs = pytest.fixture(new_export)


def test_a_class_of_another_head_is_refused(theirs):
    path = theirs / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["RobertaForMaskedLM"]}))
    refused(r"classifier\.dense\.\w+ has no counterpart", opened, theirs)
    path.write_text(json.dumps({**json.loads(path.read_text()), "id2label": ["no", "yes"]}))
    refused(r"id2label must be an object", opened, theirs)


def test_labels_are_as_many_as_the_head_has_and_can_be_named_anew(ours, theirs, tmp_path):
    new = tmp_path / "new"
    message = r"no head called 'mnli': it has masked_lm, sentence_classification_head"
    refused(message, exported, ours, new, "fairseq", head="mnli")
    refused(r"--labels names 2 classes, and the head .* has 3", exported, ours, new, "fairseq", labels=("a", "b"))
    assert not new.exists()
    assert main(["import", str(theirs), "--output-dir", str(tmp_path / "b"), "--labels", "x", "y", "z"]) == 0
    assert read_any(tmp_path / "b").labels == ("x", "y", "z")


def test_the_card_has_the_classes_and_the_data(theirs):
    card = (theirs / "README.md").read_text()
    metadata = yaml.safe_load(card.split("---")[1])
    assert metadata["pipeline_tag"] == "text-classification"
    assert metadata["tags"] == ["roberta", "classification"]
    assert "no, perhaps, yes" in card and "Fine-tuned on: made up" in card


def test_what_has_no_head_of_its_own_is_not_asked_for_masks(theirs, tmp_path):
    back = imported(theirs, tmp_path / "back").folder
    for model in (theirs, back):
        hub = RobertaHub.from_pretrained(model)
        refused("came without a masked-LM head, so it cannot fill masks", hub.fill_mask, "so <mask>")
        message = r"came without a masked-LM head, so its present head is untrained"
        refused(message, exported, model, tmp_path / "x", "fairseq", head="masked_lm")
