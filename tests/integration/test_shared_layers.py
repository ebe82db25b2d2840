"""Shared layers by the real commands: resuming in bf16, and exports as ordinary models."""

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints import build_model, model_options
from tests.hugging_face import import_transformers
from tests.tiny_conversions import batch, write_checkpoint
from tests.tiny_corpus import run_ranks, same_weights, train_command
from tests.tiny_models import options

pytestmark = pytest.mark.integration

SHARED = ("--encoder-layers", "4", "--share-layers", "groups:2", "--no-epoch-checkpoints")
ROBERTA = {"args": None, "cfg": {"task": {}, "model": {**vars(options(encoder_layers=4)), "_name": "roberta"}}}


@pytest.mark.parametrize("num_ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_in_bf16_resumes_in_mid_epoch_with_the_same_bits(tiny_data_bin, tmp_path, num_ranks):
    options = (*SHARED, "--bf16", "--update-freq", "3", "--total-num-update", "9")
    for save_dir, stops in ((tmp_path / "whole", "6"), (tmp_path / "parts", "3"), (tmp_path / "parts", "6")):
        run_ranks(train_command(tiny_data_bin, save_dir, *options, "--max-update", stops), num_ranks)
    found = same_weights(tmp_path / "parts", tmp_path / "whole")
    layers = "encoder.sentence_encoder.layers.{}.fc1.weight"
    first, second, third = (found["model"][layers.format(number)] for number in range(3))
    assert first.data_ptr() == second.data_ptr(), "the file holds a shared layer twice"
    assert not torch.equal(second, third)
    assert model_options(found)["share-layers"] == "groups:2"


def test_exports_are_ordinary_models_with_the_same_logits(tmp_path):
    folder = write_checkpoint(tmp_path / "ours", encoder_layers=4, share_layers="groups:2", share_parts="attention")
    ids, is_token = batch(folder)
    ours = RobertaHub.from_pretrained(folder)
    expected = ours.model(ids)[0][is_token]
    plain = {name: value.clone() for name, value in load_state(folder / "model.pt")["model"].items()}
    theirs = build_model({"model": plain, **ROBERTA}, folder, dictionary=ours.model.encoder.dictionary)
    assert type(theirs) is RobertaModel
    torch.testing.assert_close(theirs(ids)[0][is_token], expected, atol=1e-5, rtol=1e-5)
    for to in ("huggingface", "fairseq"):
        export_model(ExportSettings(checkpoint=folder, to=to, output_dir=tmp_path / to))
    opened = RobertaHub.from_pretrained(tmp_path / "fairseq")
    torch.testing.assert_close(opened.model(ids)[0][is_token], expected)
    exported = import_transformers().AutoModelForMaskedLM.from_pretrained(tmp_path / "huggingface").eval()
    found = exported(input_ids=ids, attention_mask=is_token.long()).logits[is_token]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
