"""Exports and imports: what is refused, and by which sentence; the folder that is written; the card."""

import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard, constants
from torch.utils._python_dispatch import TorchDispatchMode

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.cli.command import with_paths
from roberta_plugin.conversion import convert
from roberta_plugin.conversion.huggingface import read_weights, write_weights
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.data.tokenizers.huggingface import changed_places
from roberta_plugin.data.vocabulary import Row, Vocabulary
from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.hub import RobertaHub
from tests.refusals import refused
from tests.stopped_commands import check_stopped_conversion
from tests.tiny_benchmarks import write_prepared
from tests.tiny_checkpoints import Payload
from tests.tiny_conversions import exported, imported, new_export, new_masked_lm, opened, write_checkpoint

ours = pytest.fixture(new_masked_lm, scope="module")
theirs = pytest.fixture(new_export)


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "bert"}, r"model_type is 'bert', but only roberta, xlm-roberta, camembert"),
        ({"model_type": "esm"}, r"'esm', but only .* are read. Use it with transformers. If it is an export"),
        ({"position_embedding_type": "relative_key"}, r"position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, r"is_decoder is True.* Use it with transformers"),
        ({"layer_norm_eps": "small"}, r"layer_norm_eps must be a number above 0, at most 1, got 'small'"),
        ({"hidden_act": "silu"}, r"hidden_act must be one of .*gelu.*, got 'silu'"),
        ({"num_hidden_layers": "two"}, r"num_hidden_layers must be a whole number above 0, got 'two'"),
        ({"architectures": ["RobertaForCausalLM"]}, r"'RobertaForCausalLM', which has no counterpart here"),
        ({"vocab_size": 10**12}, r"vocab_size is 1000000000000, and the weights have embeddings of 268 symbols"),
        ({"num_hidden_layers": 10**9}, r"encoder_layers is 1000000000, and the weights have 3"),
        (
            {"max_position_embeddings": 2},
            r"config\.json: max_position_embeddings must be a whole number above 2, got 2",
        ),
        ({"max_position_embeddings": 10**12}, r"max_positions is 999999999998, and the weights have 40"),
        ({"model_type": ["roberta"]}, r"model_type is \['roberta'\], but only"),
        ({"hidden_act": ["gelu"]}, r"hidden_act must be one of .*gelu.*, got \['gelu'\]"),
        ({"hidden_dropout_prob": [0.1]}, r"hidden_dropout_prob must be a number from 0 to 1, got \[0\.1\]"),
        ({"num_attention_heads": 5}, r"hidden_size 24 is not a multiple of num_attention_heads 5"),
        ({"id2label": ["no", "yes"]}, r"id2label must be an object"),
        ({"architectures": None}, r"must name the class of the model, such as \[\"RobertaForMaskedLM\"\], got None"),
        ({"vocab_size": 300}, r"vocab_size is 300, and the weights have embeddings of 268 symbols"),
        ({"hidden_size": 48}, r"the parameters do not fit the model"),
    ],
)
def test_a_folder_of_another_model_is_refused(theirs, changes, words):
    change_config(theirs, **changes)
    assert "\n" not in refused(words, opened, theirs)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.safetensors", r"No weights in .*looked for model\.safetensors and pytorch_model\.bin"),
        ("tokenizer.json vocab.json", r"No tokenizer in .*looked for tokenizer\.json"),
    ],
)
def test_a_missing_file_is_named(theirs, name, words):
    for each in name.split():
        (theirs / each).unlink()
    refused(words, opened, theirs, error=FileNotFoundError)


def test_damaged_files_are_named(theirs):
    whole = (theirs / "model.safetensors").read_bytes()
    (theirs / "model.safetensors").write_bytes(whole[:200])
    refused(r"model\.safetensors is damaged or not a safetensors file", opened, theirs)
    (theirs / "model.safetensors").unlink()
    index, secret = "model.safetensors.index.json", "../ours/secret.safetensors"
    weights = json.dumps({"weight_map": {"roberta.embeddings.word_embeddings.weight": secret}})
    for name, content, words in (
        (index, weights, r"'\.\./ours/secret\.safetensors' is not the name of a file in this folder"),
        (index, '{"weight_map": ["a.safetensors"]}', r"index\.json has no weight_map"),
        ("config.json", "[" * 100_000, r"config\.json is not valid JSON"),
        ("config.json", "{", r"config\.json is not valid JSON"),
    ):
        (theirs / name).write_text(content)
        refused(words, opened, theirs)


def test_weights_that_would_run_code_are_refused(theirs, tmp_path):
    (theirs / "model.safetensors").unlink()
    torch.save({"x": Payload(open, str(tmp_path / "ran"), "w")}, theirs / "pytorch_model.bin")
    refused(r"pytorch_model\.bin", opened, theirs)
    assert not (tmp_path / "ran").exists()


def member(name, *, size=1, type=tarfile.REGTYPE, linkname=""):
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, type, linkname
    return made


LINK = member("roberta/model.pt", size=0, type=tarfile.SYMTYPE, linkname="/etc/passwd")


@pytest.mark.parametrize(
    ("name", "members", "words"),
    [
        *(
            ("a.tar.gz", [member(path)], r"contains the path .* leads out of its folder")
            for path in ("../model.pt", "/tmp/model.pt", "a/../../dict.txt")
        ),
        ("link.tar", [LINK], r"roberta/model\.pt is a link"),
        ("empty.tar.gz", [], r"has no model\.pt"),
        ("two.tar", [member("a/model.pt"), member("b/model.pt")], r"two\.tar holds model\.pt twice"),
    ],
)
def test_archives_with_other_paths_links_no_model_or_two_are_refused(tmp_path, name, members, words):
    with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as out:
        for each in members:
            out.addfile(each, io.BytesIO(b"x" * each.size))
    refused(words, opened, tmp_path / name)
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / name).read_bytes()[:15])
    refused(r"is damaged or not a tar archive", opened, tmp_path / "cut.tar.gz")


def test_unknown_formats_heads_and_folders_are_refused(ours, tmp_path):
    new, notes = tmp_path / "new", tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("mine")
    refused(r"The format of .*notes is not known\. Known are", imported, notes, new)
    refused(r"There is no .*nowhere", imported, tmp_path / "nowhere", new, error=FileNotFoundError)
    refused(r"notes holds other files than an earlier export or import", exported, ours, notes)
    assert (notes / "a.txt").read_text() == "mine"
    message = r"no head called 'mnli': it has masked_lm\."
    refused(message, exported, ours, new, "fairseq", head="mnli")
    refused(r"--labels names 2 classes, and the head .* has none", exported, ours, new, "fairseq", labels=("a", "b"))
    assert not new.exists()


def test_a_checkpoint_with_another_vocabulary_or_none_or_that_claims_a_billion_layers_is_refused(ours, tmp_path):
    shutil.copytree(ours, tmp_path / "copy")
    Vocabulary([Row("1", 1)]).save(tmp_path / "copy" / "dict.txt")
    words = r"embeddings of 268 symbols, and the vocabulary of .*dict\.txt has 6"
    refused(words, opened, tmp_path / "copy")
    state = load_state(ours / "model.pt")
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    (tmp_path / "alone").mkdir()
    torch.save(state, tmp_path / "alone" / "model.pt")
    refused(r"No dict\.txt for .*alone/model\.pt", opened, tmp_path / "alone", error=FileNotFoundError)
    state = load_state(ours / "model.pt")
    state["cfg"]["model"]["encoder_layers"] = 10**9
    shutil.copy(ours / "dict.txt", tmp_path / "copy")
    torch.save(state, tmp_path / "copy" / "model.pt")
    refused(r"encoder_layers is 1000000000, and they have 3", RobertaHub.from_pretrained, tmp_path / "copy")


def whole_weights(folder):
    """Not mapped, since the file is replaced."""
    return {key: value.clone() for key, value in read_weights(folder).items()}


def test_weights_of_odd_shapes_or_without_a_parameter_are_refused(theirs, tmp_path):
    name, whole = "roberta.embeddings.word_embeddings.weight", whole_weights(theirs)
    for odd, words in (
        ({name: whole[name].flatten()}, r"word_embeddings\.weight has the shape \(6432,\)"),
        ({name: whole[name].int()}, r"word_embeddings\.weight holds int32"),
        ({name: whole[name][:200].clone()}, r"vocab_size is 268, and the weights have embeddings of 200 symbols"),
        (name, r"the weights have no roberta\.embeddings\.word_embeddings\.weight"),
        ("roberta.encoder.layer.1.output.dense.bias", r"parameters do not fit the model\..*layers\.1\.fc2\.bias"),
    ):
        kept = {key: value for key, value in whole.items() if key != odd}
        write_weights(theirs, kept if isinstance(odd, str) else {**whole, **odd}, max_shard_bytes=10**9)
        refused(words, opened, theirs)
        refused(words, imported, theirs, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_tokenizers_with_ids_below_zero_are_refused(theirs):
    content = json.loads((theirs / "tokenizer.json").read_text())
    content["model"]["vocab"]["a"] = -5
    (theirs / "tokenizer.json").write_text(json.dumps(content))
    refused(r"tokenizer\.json: the tokenizer gives '\d+' the id -5, which is below 0", opened, theirs)


FC1 = "encoder.sentence_encoder.layers.1.fc1"
ADAPTER = {"lora_A": torch.ones(4, 24), "lora_B": torch.ones(40, 4), "scale": torch.tensor(1.0)}
DAMAGES = {
    "NaN": ({FC1: {"weight": torch.full((40, 24), torch.nan)}}, r"fc1\.weight holds NaN.* training has diverged"),
    "adapter of NaN": ({f"{FC1}.adapter": {**ADAPTER, "lora_A": torch.full((4, 24), torch.nan)}}, "lora_A holds NaN"),
    "part of an adapter": ({f"{FC1}.adapter": {"lora_A": torch.ones(4, 24)}}, r"adapter of .*fc1 is not complete"),
    "another rank": ({f"{FC1}.adapter": {**ADAPTER, "lora_A": torch.ones(3, 24)}}, "adapter of .*fc1 is not complete"),
    "one row": ({f"{FC1}.adapter": {**ADAPTER, "lora_B": torch.ones(1, 4)}}, r"not of this model \(\(1, 24\) beside"),
    "no such layer": ({"encoder.none.adapter": ADAPTER}, "adapter of encoder.none is not complete, or not of this"),
    "complex": ({FC1: {"weight": torch.ones(40, 24, dtype=torch.complex64)}}, "fc1.weight holds complex numbers"),
    "options": ({"cfg": "x"}, "does not say which model it is, in args or cfg"),
    "sharing": ({"share_layers": "groups:1000000"}, "options do not describe a model.*groups:1000000 does not divide"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_on_every_road(tmp_path, damage, capsys):
    """LoRA's parameters are added to the weights, before the model is built."""
    changes, message = DAMAGES[damage]
    folder = write_checkpoint(tmp_path / "model")
    state = load_state(folder / "model.pt")
    for name, value in changes.items():
        if isinstance(value, dict):
            state["model"] |= {f"{name}.{part}": tensor for part, tensor in value.items()}
        else:
            (state if name == "cfg" else state["cfg"]["model"])[name] = value
    torch.save(state, folder / "model.pt")
    (tmp_path / "in.jsonl").write_text('{"text": "good <mask>"}\n')
    written = [part for name in "abcdef" for part in ("--output-dir", str(tmp_path / name))]
    read = ["predict", str(folder), "--input", str(tmp_path / "in.jsonl")]
    roads = [
        [*read, "--output", str(tmp_path / "out.jsonl")],
        [*read, "--task-kind", "made", "--output", str(tmp_path / "out.csv")],
        ["export", str(folder), "--to", "huggingface", *written[:2]],
        ["import", str(folder), *written[2:4]],
        ["finetune", "made", "--raw", str(tmp_path), "--model", str(folder), *written[6:8]],
    ]
    for arguments in roads:
        assert main(arguments) == 2, arguments
        said = capsys.readouterr().err
        assert re.search(rf"{re.escape(str(folder / 'model.pt'))}.*{message}", said), (arguments, said)
        assert len(said.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "model"}


def test_weights_of_nan_in_other_formats_are_named(ours, theirs, tmp_path):
    """Their trainings diverge, too."""
    weights = read_weights(theirs)
    weights["roberta.encoder.layer.1.output.dense.bias"][3] = torch.nan
    write_weights(theirs, weights)
    message = r"roberta.*dense\.bias holds NaN or infinite values"
    refused(rf"model\.safetensors: {message}", RobertaHub.from_pretrained, theirs)
    (theirs / "model.safetensors").unlink()
    torch.save(weights, theirs / "pytorch_model.bin")
    refused(rf"pytorch_model\.bin: {message}", imported, theirs, tmp_path / "out")
    state = load_state(ours / "model.pt")
    state["model"]["encoder.lm_head.bias"][0] = torch.inf
    torch.save(state, tmp_path / "model.pt")
    message = r"model\.pt: encoder\.lm_head\.bias holds NaN or infinite values"
    refused(message, starting_model, tmp_path / "model.pt")


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
def test_a_damaged_record_of_the_data_is_named(tmp_path, content, capsys):
    """The card shows it."""
    folder = write_checkpoint(tmp_path / "model")
    state = load_state(folder / "model.pt")
    state["cfg"]["task"]["data"] = str(tmp_path)
    torch.save(state, folder / "model.pt")
    (tmp_path / "manifest.json").write_text(content)
    assert main(["export", str(folder), "--to", "huggingface", "--output-dir", str(tmp_path / "out")]) == 2
    assert f"{tmp_path / 'manifest.json'} " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_numbers_that_16_bits_cannot_hold_are_not_exported_in_them(tmp_path):
    folder = write_checkpoint(tmp_path / "model")
    state = load_state(folder / "model.pt")
    state["model"][f"{FC1}.weight"][0, 0] = 70_000
    torch.save(state, folder / "model.pt")
    message = r"model\.pt has numbers above 65,504, the largest of 16 bits: leave --half out"
    refused(message, exported, folder, tmp_path / "out", "fairseq", half=True)
    exported(folder, tmp_path / "out", "fairseq")


def test_opening_fills_nothing_with_random_numbers(ours):
    """On torch's meta device that costs seconds, as it imports torch's compiler."""
    with RandomNumbers() as seen:
        opened(ours)
    assert seen.names == []


class RandomNumbers(TorchDispatchMode):
    """Names of the operators that fill a tensor with random numbers."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "normal" in str(function) or "uniform" in str(function):
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_an_archive_that_is_too_large_or_holds_a_broken_dictionary_is_refused(ours, tmp_path):
    (tmp_path / "huge.tar").write_bytes(member("a/model.pt", size=10**15).tobuf() + b"x" * 10_000)
    message = r"model\.pt takes 1000000\.0 GB, and .* has .* GB left: set TMPDIR"
    refused(message, opened, tmp_path / "huge.tar")
    shutil.copytree(ours, tmp_path / "model")
    (tmp_path / "model" / "dict.txt").write_bytes(b"\xff 1\n")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as out:
        out.add(tmp_path / "model", "model")
    message = r"model\.tar\.gz/dict\.txt, line 1: byte 0xff is not valid UTF-8"
    refused(message, opened, tmp_path / "model.tar.gz")


def test_folders_of_the_user_stay_as_they_are(ours, theirs, tmp_path, monkeypatch):
    def refuse(words, *, source=ours, output_dir=theirs):
        refused(words, imported, source, output_dir)

    before = sorted(path.name for path in theirs.iterdir())
    refuse(r"theirs holds .*theirs, which is read: name another folder", source=theirs)
    refuse(r"theirs holds .*safetensors, which is read", source=theirs / "model.safetensors")
    monkeypatch.chdir(theirs)
    refuse(r"--output-dir \. is the current folder or above it", output_dir=Path())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    refuse(r"--output-dir .*file is a file", output_dir=tmp_path / "file")
    refuse(r"--output-dir .*file/new cannot be made \(.*\): name one", output_dir=tmp_path / "file" / "new")
    (theirs / "checkpoint_best.pt").touch()  # trained there
    refuse(r"theirs holds other files than an earlier export or import, such as checkpoint_best\.pt")
    assert sorted(path.name for path in theirs.iterdir()) == sorted([*before, "checkpoint_best.pt"])


def test_a_conversion_that_fails_leaves_the_earlier_one(ours, theirs, tmp_path, monkeypatch):
    before = {path.name: path.read_bytes() for path in theirs.iterdir()}

    def fail(*args, **others):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "card", fail)
    refused("No space left", exported, ours, theirs, error=OSError)
    assert {path.name: path.read_bytes() for path in theirs.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize("verb", ["export", "import"])
def test_a_stopped_conversion_leaves_nothing_and_a_killed_one_only_until_the_next(ours, tmp_path, monkeypatch, verb):
    words = [verb, str(ours), *(["--to", "huggingface"] if verb == "export" else [])]
    check_stopped_conversion(words, tmp_path, monkeypatch)


def test_a_link_to_a_folder_stays_one(ours, tmp_path):
    (tmp_path / "large_disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large_disk")
    for _ in range(2):
        imported(ours, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "large_disk" / "model.pt").is_file()


def test_an_earlier_export_is_replaced_as_a_whole(ours, theirs):
    exported(ours, theirs, "fairseq")
    names = "NOTE README.md conversion.json dict.txt encoder.json merges.txt model.pt vocab.bpe vocab.json"
    assert sorted(path.name for path in theirs.iterdir()) == names.split()


def test_the_card_has_the_metadata_of_the_hub_and_the_runs_figures(ours, tmp_path):
    folder = tmp_path / "out" / "runs" / "lr-1e-5" / "seed-1" / "checkpoints"
    shutil.copytree(ours, folder)
    state = load_state(folder / "model.pt")
    state["cfg"]["optimization"] = {"lr": [1e-5], "update_freq": [2]}
    state["cfg"]["dataset"] = {"batch_size": 4}
    state["cfg"]["task"]["tokens_per_sample"] = 40
    minutes = torch.tensor(5400.0, dtype=torch.float64)  # as several ranks save it
    state["extra_state"]["previous_training_time"] = minutes
    torch.save(state, folder / "model.pt")
    (tmp_path / "out" / "results").mkdir()
    (tmp_path / "out" / "results" / "results.md").write_text("| task | accuracy |\n|---|---|\n| RTE | 86.6 |\n")
    path = "out/runs/lr-1e-5/seed-{}/checkpoints/model.pt"
    members = [{"checkpoint": path.format(n), "metrics": {"accuracy": 80 + n, "made_error": 0.5}} for n in (2, 1)]
    (tmp_path / "out" / "results" / "evaluation_test.json").write_text(json.dumps({"members": members}))
    done = exported(folder, tmp_path / "card", license="mit", language=("en", "de"))
    card = (done.folder / "README.md").read_text()
    metadata = yaml.safe_load(card.split("---")[1])
    read_by_the_hub = ModelCard(card).data  # refuses results in another form
    assert read_by_the_hub.to_dict() == metadata
    result = {
        "task": {"type": "fill-mask"},
        "dataset": {"name": "unknown", "type": "unknown", "split": "test"},
        "metrics": [
            {"type": name, "value": value, "name": name} for name, value in (("accuracy", 81), ("made_error", 0.5))
        ],
    }
    assert metadata == {
        "language": ["en", "de"],
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["roberta", "masked-lm"],
        "model-index": [{"name": "out", "results": [result]}],
    }
    assert [each.metric_value for each in read_by_the_hub.eval_results] == [81, 0.5]
    for words in ("hours: 1.5", "updates: 3", "tokens (full blocks): 960", "86.6", "mit"):
        assert words in card
    assert "- test, accuracy: 81.0\n- test, made_error: 0.5\n\nAll runs:\n\n| task |" in card


def start_of(model):
    """What `roberta finetune --model` starts from."""
    return starting_model(with_paths(FinetuneSettings(task="made", model=model, output_dir=Path("out"))).model)


def test_finetune_starts_from_a_folder_or_archive_of_another_format(ours, theirs, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    start = start_of(theirs)
    assert start.checkpoint.is_relative_to(tmp_path / "assets" / "roberta_plugin")
    assert all(torch.equal(value, start.state["model"][name]) for name, value in read_any(theirs).parameters.items())
    made = start.checkpoint.stat().st_mtime_ns
    (theirs / "README.md").write_text("another card")
    assert start_of(theirs.rename(tmp_path / "moved")).checkpoint == start.checkpoint
    assert start.checkpoint.stat().st_mtime_ns == made
    file = start_of(tmp_path / "moved" / "model.safetensors").checkpoint
    assert file != start.checkpoint and file.name == "model.pt"
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    (tmp_path / "moved" / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 0.25}))
    assert start_of(tmp_path / "moved").options["layer-norm-eps"] == "0.25"

    folder = exported(ours, tmp_path / "fairseq", "fairseq").folder
    with tarfile.open(tmp_path / "old.tar.gz", "w:gz") as archive:
        archive.add(folder, "old")
    assert start_of(tmp_path / "old.tar.gz").checkpoint.is_relative_to(tmp_path / "assets")
    back = imported(ours, tmp_path / "back").folder
    assert start_of(back).checkpoint == back / "model.pt" and start_of(back).max_positions == 40


def test_evaluate_takes_folders_of_both_formats(ours, theirs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    write_prepared(tmp_path / "set")
    where = ["--data", str(tmp_path / "set"), "--output-dir", str(tmp_path / "results"), "--device", "cpu"]
    assert main(["evaluate", *where, "--checkpoint", str(theirs)]) == 2  # found; but with another vocabulary
    assert f"{tmp_path}/assets/roberta_plugin/models" in capsys.readouterr().err
    assert main(["evaluate", *where, "--checkpoint", str(tmp_path / "set")]) == 2
    assert "No checkpoint in " in capsys.readouterr().err
    assert main(["evaluate", *where, "--checkpoint", str(ours)]) == 2  # found; but trained for another task
    assert f"{ours}/model.pt" in capsys.readouterr().err


def test_the_commands_do_the_same(ours, theirs, tmp_path, capsys):
    assert main(["export", str(ours), "--to", "huggingface", "--output-dir", str(tmp_path / "a")]) == 0
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
    assert main(["import", str(tmp_path / "a"), "--output-dir", str(tmp_path / "b")]) == 0
    assert read_any(tmp_path / "b").head.name == "masked_lm"
    assert main(["import", str(tmp_path / "none"), "--output-dir", str(tmp_path / "c")]) == 2
    assert "There is no" in capsys.readouterr().err


SETTINGS = [5, {"task": "made"}, {"task": "made", "settings": 3}, {"task": "made", "settings": {"max_length": -1}}]
NUMBERS = [0.5, {"threshold": 1.5}, {"temperature": 0.0}, {"threshold": "0.5"}, {"labels": 0.5}]


@pytest.mark.parametrize(("field", "entries"), [("fine_tuned_on", SETTINGS), ("decides_by", NUMBERS)])
def test_settings_of_a_training_and_numbers_that_no_export_writes_are_refused(theirs, field, entries):
    for entry in entries:
        change_config(theirs, **{field: entry})
        refused(rf"config\.json: {field} was not written by an export: delete the entry", opened, theirs)


def test_a_task_that_is_not_installed_is_named_and_not_imported(theirs):
    change_config(theirs, fine_tuned_on={"task": "os.system", "settings": {}})
    refused(r"config\.json: There is no fine-tuning task 'os\.system'; there are .*made", opened, theirs)


def test_camemberts_symbols_change_places():
    symbols = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "a", "<mask>"]
    order = changed_places(symbols)
    assert order.tolist() == [5, 1, 6, 3, 4, 0, 2, 7, 8]
    assert order[order].tolist() == list(range(9))
    assert changed_places(["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]) is None


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "model.", "model._orig_mod."])
def test_what_a_program_put_before_all_names_is_left_out_with_a_line(theirs, prefix):
    whole = whole_weights(theirs)
    write_weights(theirs, {f"{prefix}{name}": value for name, value in whole.items()}, max_shard_bytes=10**9)
    model = read_any(theirs)
    assert f"begin with {prefix.split('.')[0]}., as" in model.notes[0]
    words = "encoder.sentence_encoder.embed_tokens.weight"
    assert torch.equal(model.parameters[words], whole["roberta.embeddings.word_embeddings.weight"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tf_model.h5", r"tf_model\.h5 is TensorFlow's: open it with transformers 4"),
        ("flax_model.msgpack", r"flax_model\.msgpack is Flax's"),
    ],
)
def test_weights_of_other_programs_are_named(theirs, name, words):
    (theirs / "model.safetensors").rename(theirs / name)
    refused(words, read_any, theirs, error=FileNotFoundError)


@pytest.mark.parametrize(
    ("names", "words"),
    [("vocab.txt bpe.codes", "fastBPE's for words .* PhoBERT and BERTweet"), ("vocab.txt", "BERT's WordPiece")],
)
def test_tokenizers_of_other_kinds_are_named(theirs, names, words):
    for name in ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (theirs / name).unlink()
    for name in names.split():
        (theirs / name).write_text("a 5\n")
    refused(rf"has the tokenizer .*{words}, which is not read here", read_any, theirs)
