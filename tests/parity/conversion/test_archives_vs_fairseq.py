"""Archives in the layout of fairseq's released models: in fairseq's own hub and in ours."""

import hashlib
import json
import shutil
import tarfile

import pytest
import torch
from fairseq import file_utils
from fairseq.models.roberta import RobertaModel

from roberta_plugin.conversion import model_files
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.hub import RobertaHub
from tests.hub_server import running_hub
from tests.hugging_face import import_transformers
from tests.refusals import refused
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import HEAD, batch, exported, imported, opened, write_checkpoint

TEXT = "so it is <mask>, or bad"


def fairseqs_hub(folder):
    return RobertaModel.from_pretrained(str(folder), "model.pt", bpe="hf_byte_bpe").eval()


@torch.no_grad()
@pytest.mark.parametrize("layout", ["today", "2019"])
@pytest.mark.parametrize("kind", ["masked_lm", "classification"])
def test_exports_work_in_fairseqs_hub(tmp_path, layout, kind):
    ours = write_checkpoint(tmp_path / "ours", kind)
    folder = exported(ours, tmp_path / "fairseq", "fairseq", layout=layout).folder
    theirs, hub = fairseqs_hub(folder), RobertaHub.from_pretrained(ours)
    assert type(theirs.model) is RobertaModel
    assert torch.equal(theirs.encode("so it is good"), hub.encode("so it is good"))
    ids, is_token = batch(ours)
    found, expected = theirs.extract_features(ids), hub.extract_features(ids)
    torch.testing.assert_close(found[is_token], expected[is_token], atol=1e-5, rtol=1e-5)
    answers = [(filling.text, filling.token) for filling in hub.fill_mask(TEXT)]
    assert [(text, token) for text, _, token in theirs.fill_mask(TEXT)] == answers
    if kind == "classification":
        torch.testing.assert_close(theirs.predict(HEAD, ids), hub.predict(HEAD, ids), atol=1e-5, rtol=1e-5)
        assert "no, perhaps, yes" in (folder / "NOTE").read_text()


@pytest.fixture
def archive(tmp_path):
    """What fairseq's authors distribute: model.pt in half precision, dict.txt and NOTE, and no tokenizer."""
    words = write_checkpoint(tmp_path / "words")
    state = state_of(words, form="args", arch="roberta_large", heads={"mnli": 3})
    torch.save(state, tmp_path / "words" / "model.pt")
    options = {"layout": "2019", "half": True, "head": "mnli"}
    folder = exported(words, tmp_path / "roberta.mnli", "fairseq", **options).folder
    content = torch.load(folder / "model.pt", weights_only=True)
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in content["model"]
    assert content["model"]["decoder.lm_head.bias"].dtype is torch.float16
    with tarfile.open(tmp_path / "roberta.mnli.tar.gz", "w:gz") as out:
        for name in ("model.pt", "dict.txt", "NOTE"):
            out.add(folder / name, f"roberta.mnli/{name}")
    return tmp_path / "roberta.mnli.tar.gz", folder


@torch.no_grad()
def test_a_released_archive_is_read_as_it_is(archive, tmp_path, monkeypatch):
    path, folder = archive
    monkeypatch.setattr(model_files, "is_of_gpt2", lambda vocabulary: True)
    monkeypatch.setattr(model_files, "gpt2_tokenizer", lambda where: load_tokenizer(folder))
    theirs, hub = fairseqs_hub(folder).float(), RobertaHub.from_pretrained(path)
    tokens = hub.encode("so it is good", "or bad")
    assert torch.equal(theirs.encode("so it is good", "or bad"), tokens)
    found = hub.predict("mnli", tokens)
    torch.testing.assert_close(found, theirs.predict("mnli", tokens), atol=1e-5, rtol=1e-5)
    assert hub.labels == ["contradiction", "neutral", "entailment"]
    back = imported(path, tmp_path / "imported").folder
    assert torch.equal(RobertaHub.from_pretrained(back).predict("mnli", tokens), found)
    hf = exported(back, tmp_path / "hf").folder
    model = import_transformers().AutoModelForSequenceClassification.from_pretrained(hf, dtype="float32").eval()
    torch.testing.assert_close(model(tokens[None]).logits.log_softmax(dim=-1), found, atol=1e-5, rtol=1e-5)
    assert model.config.id2label == {0: "contradiction", 1: "neutral", 2: "entailment"}


def test_gpt2s_files_come_from_fairseqs_cache_or_are_named(archive, tmp_path, monkeypatch):
    path, folder = archive
    monkeypatch.setattr(model_files, "is_of_gpt2", lambda vocabulary: True)

    monkeypatch.setattr(file_utils, "PYTORCH_FAIRSEQ_CACHE", tmp_path / "cache")
    content = {name: (folder / name).read_bytes() for name in ("encoder.json", "vocab.bpe")}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    monkeypatch.setattr(model_files, "SHA256", digests)

    with running_hub() as server:
        monkeypatch.setattr(model_files, "GPT2_FILES", f"{server.url}/files")
        message = r"mnli\.tar\.gz has no tokenizer.*404.*/encoder\.json and .*vocab\.bpe"
        refused(message, opened, path, error=FileNotFoundError)
        server.files = dict.fromkeys(content, b"a page that asks to log in")
        refused(r"the server has another file at", opened, path, error=FileNotFoundError)
        assert list((tmp_path / "cache").iterdir()) == []
        server.files = content
        assert read_any(path).labels == ("contradiction", "neutral", "entailment")
    assert read_any(path).labels == ("contradiction", "neutral", "entailment"), "from the cache"
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    for name, data in content.items():  # as fairseq's download leaves them
        cached = tmp_path / "cache" / file_utils.url_to_filename(f"{model_files.GPT2_FILES}/{name}", etag="made up")
        cached.write_bytes(data)
        cached.with_name(f"{cached.name}.json").write_text("{}")
    assert read_any(path).labels == ("contradiction", "neutral", "entailment")
    with tarfile.open(path) as members:
        members.extractall(tmp_path / "unpacked")
    assert RobertaHub.from_pretrained(tmp_path / "unpacked" / "roberta.mnli").heads == ["mnli"]
    assert RobertaHub.from_pretrained(path, data=folder).heads == ["mnli"]
    back = imported(path, tmp_path / "imported").folder
    assert json.loads((back / "conversion.json").read_text())["source"] == str(path)
