"""roberta.large.mnli.tar.gz as fairseq's authors distribute it, but narrow: real vocabulary, 512 positions, fp16."""

import argparse
import tarfile

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from roberta_plugin.hub import RobertaHub
from tests.tiny_conversions import exported, imported

DIM, FFN, LAYERS, SYMBOLS, POSITIONS = 32, 64, 2, 50_265, 514
SIZES = {"tokens": SYMBOLS, "positions": POSITIONS}
# The options that the released files hold and that concern the model or lead astray, in an argparse.Namespace.
OPTIONS = {
    "arch": "roberta_large",
    "task": "masked_lm",
    "criterion": "masked_lm",
    "data": "/private/home/somebody/data-bin",
    "bpe": "gpt2",
    "activation_fn": "gelu",
    "pooler_activation_fn": "tanh",
    "pooler_dropout": 0.0,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.0,
    "encoder_layers": LAYERS,
    "encoder_embed_dim": DIM,
    "encoder_ffn_embed_dim": FFN,
    "encoder_attention_heads": 4,
    "max_positions": 512,
    "tokens_per_sample": 512,
    "sample_break_mode": "complete",
    "fp16": True,
    "lr": [0.0004],
    "update_freq": [1],
    "user_dir": None,
}
TEXTS = ("Roberta is a heavily optimized version of BERT.", "Roberta is not very optimized.")


def parameters_of_2019():
    """By the names of 2019, written down from the released files; values are random."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return (torch.randn(shape, generator=generator) * 0.05).half()

    def linear(name, rows, columns):
        return {f"{name}.weight": random(rows, columns), f"{name}.bias": random(rows)}

    def norm(name):
        return {f"{name}.weight": random(DIM) + 1, f"{name}.bias": random(DIM)}

    trunk = "decoder.sentence_encoder"
    found = {f"{trunk}.embed_{name}.weight": random(size, DIM) for name, size in SIZES.items()}
    for number in range(LAYERS):
        layer = f"{trunk}.layers.{number}"
        joint = f"{layer}.self_attn.in_proj"
        found |= {f"{joint}_weight": random(3 * DIM, DIM), f"{joint}_bias": random(3 * DIM)}
        found |= linear(f"{layer}.self_attn.out_proj", DIM, DIM) | norm(f"{layer}.self_attn_layer_norm")
        found |= linear(f"{layer}.fc1", FFN, DIM) | linear(f"{layer}.fc2", DIM, FFN) | norm(f"{layer}.final_layer_norm")
    found |= norm(f"{trunk}.emb_layer_norm")
    found |= {"decoder.lm_head.weight": found[f"{trunk}.embed_tokens.weight"], "decoder.lm_head.bias": random(SYMBOLS)}
    found |= linear("decoder.lm_head.dense", DIM, DIM) | norm("decoder.lm_head.layer_norm")
    head = "classification_heads.mnli"
    return found | linear(f"{head}.dense", DIM, DIM) | linear(f"{head}.out_proj", 3, DIM)


@pytest.fixture(scope="module")
def released(shared_data, tmp_path_factory):
    """The archive, and the folder of GPT-2's two files and dict.txt."""
    folder = tmp_path_factory.mktemp("released") / "roberta.large.mnli"
    folder.mkdir()
    state = {"args": argparse.Namespace(**OPTIONS), "model": parameters_of_2019()}
    torch.save(state, folder / "model.pt", _use_new_zipfile_serialization=False)
    words = shared_data / "gpt2_bpe"
    (folder / "dict.txt").write_bytes((words / "dict.txt").read_bytes())
    (folder / "NOTE").write_text("")
    with tarfile.open(folder.with_name("roberta.large.mnli.tar.gz"), "w:gz") as out:
        out.add(folder, folder.name)
    return folder.with_name("roberta.large.mnli.tar.gz"), words


@torch.no_grad()
def test_the_archive_answers_as_in_fairseqs_hub(released, tmp_path):
    """Both read the released file: fairseq the folder, ours the archive with GPT-2's files as --data."""
    archive, words = released
    hub = RobertaHub.from_pretrained(archive, data=words)
    assert hub.labels == ["contradiction", "neutral", "entailment"]
    tokens = hub.encode(*TEXTS)
    assert tokens.max() < 50_000
    back = imported(archive, tmp_path / "imported", data=words)
    assert back.model.path == archive
    again = exported(back.folder, tmp_path / "again", "fairseq", layout="2019").folder
    theirs = RobertaModel.from_pretrained(str(again), "model.pt", bpe="hf_byte_bpe").eval()
    assert torch.equal(theirs.encode(*TEXTS), tokens)
    # The parameters of the released file itself, by fairseq's own renaming
    state = torch.load(archive.parent / "roberta.large.mnli" / "model.pt", weights_only=False)
    parameters = {name: value.float() for name, value in state["model"].items()}
    theirs.model.upgrade_state_dict(parameters)
    theirs.model.load_state_dict(parameters)
    torch.testing.assert_close(hub.predict("mnli", tokens), theirs.predict("mnli", tokens), atol=1e-5, rtol=1e-5)
    found, expected = hub.extract_features(tokens), theirs.extract_features(tokens)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
