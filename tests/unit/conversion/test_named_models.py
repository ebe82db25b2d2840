"""Models by name: a path comes first, and what is refused, by which sentence; the hub is a server on the loopback."""

import json
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard, constants
from safetensors.torch import load_file

from roberta_plugin.conversion import model_files, named_models
from roberta_plugin.conversion.convert import ImportSettings, import_model, imported
from roberta_plugin.conversion.named_models import hub_name, local_path
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.state_dicts import TOKENS
from tests.hub_server import empty_hub
from tests.refusals import refused
from tests.tiny_conversions import exported, new_masked_lm, new_shards, opened

NAME = Path("org/tiny")


hub = pytest.fixture(empty_hub)
ours = pytest.fixture(new_masked_lm, scope="module")
theirs = pytest.fixture(new_shards, scope="module")


def test_a_branch_a_tag_and_a_commit_are_names_and_a_folder_of_the_name_comes_first(hub, theirs, tmp_path):
    first = hub.add("org/tiny", theirs, "main", "v1", "refs/pr/1")
    second = hub.add("org/tiny", {**hub.models["org/tiny"].commits[first], "x.txt": b""}, "main")
    revisions = {"": second, "@main": second, "@v1": first, "@refs/pr/1": first, f"@{first}": first}
    for revision, commit in revisions.items():
        folder = local_path(Path(f"org/tiny{revision}"))
        assert folder.name == commit
        assert hub_name(folder) == hub_name(folder / "model.safetensors") == "org/tiny"
        assert not (folder / "x.txt").exists()
    found = RobertaHub.from_pretrained("org/tiny", data=None)  # shards, and a tokenizer
    assert len(found.fill_mask("good <mask>")) == 5

    asked = len(hub.requests)
    shutil.copytree(theirs, NAME)
    assert local_path(NAME) == NAME
    for path in ("checkpoints/model.pt", "a/b/c", "/org/tiny", "org", "../tiny", "org/a.tar.gz", "org/two words"):
        assert local_path(Path(path)) == Path(path)
        assert hub_name(Path(path)) == ""
    assert len(hub.requests) == asked, "a path is not asked for"


def test_what_is_not_there_is_refused_by_a_sentence_that_names_both_possibilities(hub, theirs, monkeypatch):
    hub.add("org/tiny", theirs)
    hub.add("org/gated", theirs, is_gated=True)
    hub.add("org/private", theirs, is_private=True)
    typo = r"There is no file or folder checkpoints/best here, and http\S+ shows no model of that name: correct the path or"
    private = r"shows no model of that name.*For a private model, log in by `hf auth login`, or set HF_TOKEN"
    for name, words in (
        ("checkpoints/best", typo),
        ("org/private", private),
        ("org/gated", r"org/gated is a gated model: accept its terms at http\S+/org/gated, then log in"),
        ("org/tiny@v9", r"org/tiny has no branch, tag or commit 'v9' at http\S+: correct it, or leave @v9 out"),
    ):
        assert "\n" not in refused(words, local_path, Path(name), error=FileNotFoundError)
    monkeypatch.setenv("HF_TOKEN", "hf_read")
    assert hub_name(local_path(Path("org/private"))) == "org/private"
    assert hub_name(local_path(Path("org/gated"))) == "org/gated"
    monkeypatch.setenv("HF_TOKEN", "hf_of_yesterday")
    words = r"does not accept your token for org/other: log in"
    refused(words, local_path, Path("org/other"), error=FileNotFoundError)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    words = r"no file or folder runs/best.*HF_HUB_OFFLINE is set.*or unset it"
    refused(words, local_path, Path("runs/best"), error=FileNotFoundError)
    assert hub_name(local_path(Path("org/private"))) == "org/private", "from the cache"
    words = r"There is no nothing: .*org/name.*roberta\.large\.mnli"
    refused(words, opened, Path("nothing"), error=FileNotFoundError)


def test_a_pickle_comes_only_where_it_is_asked_for(hub, theirs, tmp_path):
    files = {path.name: path.read_bytes() for path in theirs.iterdir() if "safetensors" not in path.name}
    weights = read_any(theirs)
    state = tmp_path / "pytorch_model.bin"
    torch.save({name: each for shard in theirs.glob("*.safetensors") for name, each in load_file(shard).items()}, state)
    hub.add("org/tiny", {**files, "pytorch_model.bin": state.read_bytes()})
    hub.add("org/empty", {"README.md": b"", "flax_model.msgpack": b""})
    command = r"`roberta import org/tiny --allow-pickle --output-dir FOLDER` reads it"
    words = rf"org/tiny.* only as a pickle \(pytorch_model\.bin\).*{command}"
    refused(words, local_path, NAME)
    assert not [each for each in hub.requests if each.endswith(".bin")]
    words = r"org/empty.* has no weights that can be read here.* has README\.md, flax_model"
    refused(words, local_path, Path("org/empty"))
    done = import_model(ImportSettings(source=NAME, output_dir=tmp_path / "done", allow_pickle=True))
    assert torch.equal(done.model.parameters[TOKENS], weights.parameters[TOKENS])
    refused("only as a pickle", local_path, NAME)  # though it is in the cache now


def test_what_was_exported_for_fairseq_is_imported_by_name(hub, ours, tmp_path):
    hub.add("org/tiny", exported(ours, tmp_path / "f", "fairseq").folder)
    refused(r"only as a pickle \(model\.pt\).*roberta import org/tiny --allow-pickle", local_path, NAME)
    done = import_model(ImportSettings(source=NAME, output_dir=tmp_path / "done", allow_pickle=True))
    assert done.model.head.name == "masked_lm"


def test_a_download_that_breaks_off_is_an_error_and_is_continued(hub, theirs, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.add("org/tiny", theirs)
    hub.breaks = 1000
    words = r"could not be fetched from http\S+ \(.+\)\. Run the same command again"
    refused(words, local_path, NAME, error=FileNotFoundError)
    hub.breaks = 0
    opened(NAME)


def test_a_model_by_name_is_imported_once_by_commit_also_by_two_at_once(hub, theirs, tmp_path, caplog):
    first = hub.add("org/tiny", theirs)
    with ThreadPoolExecutor(2) as both:
        folder, other = both.map(imported, [NAME, NAME])
    assert folder == other
    assert caplog.text.count(f"org/tiny is imported into {folder}, where the next start finds it.") == 1
    assert folder.is_relative_to(tmp_path / "assets" / "roberta_plugin")
    assert first in folder.name
    made = (folder / "model.pt").stat()
    assert imported(Path(f"org/tiny@{first}")) == folder
    assert (folder / "model.pt").stat() == made
    assert json.loads((folder / "conversion.json").read_text())["source"] == str(local_path(NAME))
    hub.add("org/tiny", {**hub.models["org/tiny"].commits[first], "vocab.json": b"{}"})
    assert imported(NAME) != folder, "another commit"
    assert imported(tmp_path) == tmp_path


def test_archives_of_fairseq_come_by_name_into_torchs_cache(hub, ours, tmp_path, monkeypatch):
    monkeypatch.setattr(named_models, "ARCHIVE_URL", f"{hub.url}/files")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(ours, "roberta.base")
    words, base = r"no file or folder roberta\.base here, and .*HTTP Error 404.*download http", Path("roberta.base")
    refused(words, opened, base, error=FileNotFoundError)
    hub.files["roberta.base.tar.gz"] = (tmp_path / "a.tar.gz").read_bytes()
    hub.breaks = 1
    refused(r"roberta\.base\.tar\.gz ended after [\d,]+ of [\d,]+ bytes", opened, base, error=FileNotFoundError)
    cache = tmp_path / "torch" / "checkpoints"
    assert list(cache.iterdir()) == []
    assert read_any(Path("roberta.base")).source == "fairseq"
    hub.files.clear()
    folder = imported(Path("roberta.base"))
    assert (folder / "dict.txt").is_file()
    assert hub_name(cache / "roberta.base.tar.gz") == "FacebookAI/roberta-base"


def test_a_download_of_another_hash_does_not_appear(hub, tmp_path):
    hub.files["vocab.bpe"] = b"a page that asks to log in"
    words, url = r"the server has another file at http\S+/vocab\.bpe", f"{hub.url}/files/vocab.bpe"
    refused(words, model_files.download, url, tmp_path / "cache" / "vocab.bpe", sha256="0" * 64)
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_upload_brings_the_card_and_leaves_what_is_of_this_machine_or_of_an_earlier_upload(
    hub, ours, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_write")
    sharded = {"max_shard_bytes": 20_000, "private": True, "license": "mit"}
    done = exported(ours, tmp_path / "shards", push="me/new", **sharded)
    files = hub.models["me/new"].commits[hub.models["me/new"].refs["main"]]
    assert done.pushed == f"{hub.url}/me/new/commit/{hub.models['me/new'].refs['main']}"
    assert hub.models["me/new"].is_private
    assert any(name.startswith("model-0000") for name in files)
    assert "conversion.json" not in files
    card = files["README.md"].decode()
    assert set(hub.cards) == {card}, "validated by the hub before the upload"
    assert ModelCard(card).data.license == "mit"
    assert "# RoBERTa me/new\n" in card
    assert 'pipeline("fill-mask", "me/new"' in card

    exported(ours, tmp_path / "one", push="me/new")
    files = hub.models["me/new"].commits[hub.models["me/new"].refs["main"]]
    assert [name for name in files if name.startswith("model")] == ["model.safetensors"]
    before = hub.models["me/new"].refs["main"]
    exported(ours, tmp_path / "branch", push="me/new@half")
    assert hub.models["me/new"].refs.keys() == {"main", "half"}
    assert hub.models["me/new"].refs["main"] == before
    exported(ours, tmp_path / "fairseq", "fairseq", push="me/new")
    files = hub.models["me/new"].commits[hub.models["me/new"].refs["main"]]
    assert {"model.safetensors", "model.pt"} <= files.keys(), "weights of another format stay"
    monkeypatch.delenv("HF_TOKEN")
    refused("For a private model, log in", RobertaHub.from_pretrained, "me/new", error=FileNotFoundError)
    monkeypatch.setenv("HF_TOKEN", "hf_read")
    assert len(RobertaHub.from_pretrained("me/new@half").fill_mask("good <mask>")) == 5


def test_an_upload_without_a_right_to_it_is_refused_before_anything_is_exported(hub, ours, tmp_path, monkeypatch):
    folder = tmp_path / "exported"
    for token, words in (
        (None, r"--push me/new: http\S+ accepts no token of yours \(.*\): log in by `hf auth login`, or set HF_TOKEN"),
        ("hf_of_yesterday", r"--push me/new: http\S+ accepts no token of yours \(.*\): log in .*, or leave --push out"),
    ):
        monkeypatch.setenv("HF_TOKEN", token or "")
        refused(words, exported, ours, folder, push="me/new")
    refused(r"--push 'new' must be ORG/NAME or ORG/NAME@BRANCH", exported, ours, folder, push="new")
    refused(r"--private goes with --push", exported, ours, folder, private=True)
    monkeypatch.setenv("HF_TOKEN", "hf_write")
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        refused("offline mode is enabled.*HF_HUB_OFFLINE.*or leave --push out", exported, ours, folder, push="me/new")
    assert not folder.exists()
    assert not hub.models
    monkeypatch.setenv("HF_TOKEN", "hf_read")
    refused("exported was exported, but not uploaded to .*403", exported, ours, folder, push="me/new")
    monkeypatch.setenv("HF_TOKEN", "hf_write")

    hub.add("me/public", {"a": b""})
    words = r"exported was exported, but not uploaded to .*it is a public model already"
    refused(words, exported, ours, folder, push="me/public", private=True)
    assert list(hub.models["me/public"].commits.values()) == [{"a": b""}]
    assert len(RobertaHub.from_pretrained(folder).fill_mask("good <mask>")) == 5
