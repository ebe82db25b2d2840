"""Encoders with the layer norm before each sublayer: Hugging Face's RobertaPreLayerNorm and fairseq's roberta_prenorm."""

import json

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.models.checkpoints import model_options
from tests.hugging_face import import_transformers
from tests.refusals import refused
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import HEAD, batch, comes_back, exported, opened, write_checkpoint

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
BEFORE = {"encoder_normalize_before": True}
PRENORM = {**BEFORE, "no_layernorm_embedding": True}


@torch.no_grad()
@pytest.mark.parametrize("sentencepiece", [False, True], ids=["byte_level_bpe", "sentencepiece"])
def test_hugging_face_computes_what_our_model_does_and_every_bit_comes_back(tmp_path, sentencepiece):
    transformers = import_transformers()
    ours = write_checkpoint(tmp_path / "ours", sentencepiece=sentencepiece, **BEFORE)
    folder = exported(ours, tmp_path / "theirs").folder
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert type(theirs).__name__ == "RobertaPreLayerNormForMaskedLM"
    ids, is_token = batch(ours)
    found = theirs(input_ids=ids, attention_mask=is_token.long()).logits
    torch.testing.assert_close(found[is_token], opened(ours)(ids)[0][is_token], **TOLERANCE)
    assert transformers.AutoTokenizer.from_pretrained(folder)("so it is good")["input_ids"][0] == 0

    comes_back(ours, folder, tmp_path)


@torch.no_grad()
def test_a_classifier_made_by_hugging_face_comes_in(tmp_path):
    transformers = import_transformers()
    words = exported(write_checkpoint(tmp_path / "words", "classification"), tmp_path / "theirs").folder
    config = json.loads((words / "config.json").read_text())
    torch.manual_seed(3)
    config = {name: value for name, value in config.items() if name not in ("architectures", "model_type", "dtype")}
    config = transformers.RobertaPreLayerNormConfig(**config)
    theirs = transformers.RobertaPreLayerNormForSequenceClassification(config).eval()
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(words)
    model = opened(words)
    ids, is_token = batch(tmp_path / "words")
    expected = theirs(input_ids=ids, attention_mask=is_token.long()).logits
    torch.testing.assert_close(model(ids, head=HEAD)[0], expected, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("norms", [BEFORE, PRENORM], ids=["before", "roberta_prenorm"])
def test_fairseq_computes_what_our_model_does_and_the_other_way_round(tmp_path, norms):
    ours = write_checkpoint(tmp_path / "ours", **norms)
    folder = exported(ours, tmp_path / "fairseq", "fairseq").folder
    theirs = RobertaModel.from_pretrained(str(folder), "model.pt", bpe="hf_byte_bpe").eval()
    model = opened(ours)
    ids, is_token = batch(ours)
    torch.testing.assert_close(theirs.model(ids)[0][is_token], model(ids)[0][is_token], **TOLERANCE)

    arch = "roberta_prenorm" if norms is PRENORM else "roberta"
    trained = state_of(ours, form="args", arch=arch, **BEFORE, layernorm_embedding=norms is not PRENORM)
    torch.save(trained, ours / "model.pt")
    options = model_options(load_state(ours / "model.pt"))
    assert options["encoder-normalize-before"] == "true"
    assert options.get("no-layernorm-embedding") == ("true" if norms is PRENORM else None)
    read = exported(ours, tmp_path / "again", "fairseq").folder
    assert all(torch.equal(load_state(read / "model.pt")["model"][n], v) for n, v in trained["model"].items())


def test_forms_that_cannot_say_it_are_refused(tmp_path):
    ours = write_checkpoint(tmp_path / "ours", **PRENORM)
    words = r"normalizes before its layers .*leave --layout 2019 out"
    refused(words, exported, ours, tmp_path / "fairseq", "fairseq", layout="2019")
    state = load_state(ours / "model.pt")
    del state["model"]["encoder.sentence_encoder.layer_norm.weight"]
    torch.save(state, ours / "model.pt")
    words = r"model\.pt: encoder_normalize_before is True in the options"
    refused(words, exported, ours, tmp_path / "damaged", "fairseq")
