"""`roberta import` compares with the other program: what the tables of fields do not know is refused with its size."""

import importlib.util
import json
import shutil

import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.conversion import comparison, fields, huggingface
from roberta_plugin.data.tokenizers import huggingface_fields
from roberta_plugin.extensions.modernbert import family as modernbert
from roberta_plugin.extensions.peft import adapter
from roberta_plugin.extensions.sentence_transformers import reading
from tests.hugging_face import import_transformers, later
from tests.refusals import refused
from tests.tiny_conversions import changed, exported, imported, write_checkpoint

transformers = import_transformers()
peft = later("peft")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Folders of RoBERTa and of ModernBERT."""
    folder = tmp_path_factory.mktemp("comparison")
    exported(write_checkpoint(folder / "ours"), folder / "roberta")
    switches = {"position_encoding": "rotary", "feed_forward": "geglu", "encoder_normalize_before": True}
    switches |= {"no_first_attention_norm": True, "attention_window": 8, "global_attention_every": 2}
    exported(write_checkpoint(folder / "modern", encoder_layers=4, **switches), folder / "modernbert")
    return folder


@pytest.fixture
def without_tables(monkeypatch):
    for module in (fields, huggingface_fields, adapter, reading):
        monkeypatch.setattr(module, "check_fields", lambda *arguments, **options: [])


@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_a_folder_that_is_read_right_is_imported_without_a_word(theirs, tmp_path, name, capfd):
    imported(theirs / name, tmp_path / "ours")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        (
            "roberta",
            "config.json",
            {"is_causal": True},
            "the answers differ from transformers' by .*the largest number",
        ),
        ("roberta", "config.json", {"layer_norm_eps": 0.1}, None),
        ("roberta", "tokenizer_config.json", {"add_prefix_space": True}, None),
        ("roberta", "config.json", {"odd": 3}, None),
        ("roberta", "config.json", {"attn_implementation": "org/kernel"}, None),  # which would be fetched and run
        (
            "roberta",
            "tokenizer_config.json",
            {"tokenizer_class": "BertTokenizer"},
            "the tokenizer gives other ids here",
        ),
    ],
    ids=str,
)
def test_another_answer_is_refused_whatever_it_comes_from(
    theirs, tmp_path, without_tables, name, file, change, message
):
    folder = changed(theirs / name, file, tmp_path, change)
    if message is None:
        imported(folder, tmp_path / "ours")
        return
    assert str(folder) in refused(f"{message}.*import it with --no-comparison", imported, folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    assert imported(folder, tmp_path / "ours", no_comparison=True).folder.is_dir()


def test_faults_of_our_own_reading_are_refused(theirs, tmp_path, monkeypatch):
    """As mutants that other tests did not notice: keys for values, and windows that are too wide."""

    def swapped(state, options, *, read=modernbert.as_roberta):
        state = read(state, options)
        pairs = [(name, name.replace(".key.", ".value.")) for name in state if ".key." in name]
        assert pairs
        return state | {a: state[b] for a, b in pairs} | {b: state[a] for a, b in pairs}

    def wider(config, path, *, read=modernbert.from_config):
        options = read(config, path)
        return {**options, "attention_window": options["attention_window"] + 2}

    for name, fault in (("as_roberta", swapped), ("from_config", wider)):
        with monkeypatch.context() as patch:
            patch.setattr(modernbert, name, fault)
            refused("the answers differ from transformers' by", imported, theirs / "modernbert", tmp_path / "ours")
    imported(theirs / "modernbert", tmp_path / "ours")


def test_what_versions_of_transformers_read_in_different_files_is_said_without_it_too(theirs, tmp_path):
    """Both were followed here without a word, and transformers 5 gave other ids."""
    words = "the tokenizer gives other ids here than in transformers"
    for file, change, note in (
        ("tokenizer.json", {"normalizer": {"type": "NFC"}}, "NFC is followed, which transformers 5 leaves out for Rob"),
        (
            "tokenizer_config.json",
            {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": True},
            "add_prefix_space is not as in tokenizer_config.json, which is followed: texts begin with a space",
        ),
    ):
        folder = changed(theirs / "roberta", file, tmp_path, change)
        assert any(note in said for said in huggingface.read_huggingface(folder).notes)
        if file == "tokenizer_config.json":
            refused(words, imported, folder, tmp_path / "ours")
    assert not huggingface.read_huggingface(theirs / "roberta").notes


def test_an_adapter_is_compared_with_pefts(theirs, tmp_path, without_tables):
    torch.manual_seed(6)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(theirs / "roberta", num_labels=2)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=3, target_modules=["query", "value"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path / "adapter")
    imported(theirs / "roberta", tmp_path / "ours", adapter=tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "alpha_pattern": {"query": 900}}))
    shutil.rmtree(tmp_path / "ours")
    words = "the answers differ from transformers' by"
    refused(words, imported, theirs / "roberta", tmp_path / "ours", adapter=tmp_path / "adapter")


def test_what_the_other_program_does_not_open_is_said(theirs, tmp_path, without_tables):
    folder = changed(theirs / "roberta", "config.json", tmp_path, {"transformers_weights": "other.safetensors"})
    (note,) = imported(folder, tmp_path / "ours").notes
    assert "was not compared with transformers, which does not open it (FileNotFoundError:" in note


def test_weights_that_the_other_program_does_not_find_are_imported_with_a_note(theirs, tmp_path):
    """As torch.compile or Lightning name them: it draws numbers in their place."""
    folder = changed(theirs / "roberta", "config.json", tmp_path, {})
    weights = huggingface.read_weights(folder)
    huggingface.write_weights(folder, {f"_orig_mod.{name}": value for name, value in weights.items()})
    *_, note = imported(folder, tmp_path / "ours").notes
    assert "was not compared with transformers, which does not open it (KeyError: 'it finds no " in note
    huggingface.write_weights(folder, {name: value + 1 for name, value in weights.items()}, name="other.safetensors")
    shutil.rmtree(tmp_path / "ours")
    imported(folder / "other.safetensors", tmp_path / "ours")


def test_without_the_other_program_the_tables_refuse(theirs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    monkeypatch.setattr(comparison, "_compare_ids", lambda *_: pytest.fail("there is nothing to compare with"))
    folder = changed(theirs / "roberta", "config.json", tmp_path, {"is_causal": True, "odd": 3})
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 2
    assert "is_causal is True, and only False is read here" in capsys.readouterr().err
    folder = changed(theirs / "roberta", "config.json", tmp_path, {"odd": 3})
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 0
    assert "has fields that are not read here: odd (3)" in capsys.readouterr().out


def test_every_text_is_compared(theirs, tmp_path, monkeypatch):
    """One symbol that only one text has is enough."""
    for text in comparison.TEXTS:
        with monkeypatch.context() as patch:
            patch.setattr(huggingface, "read_tokenizer", _without_merge_of(text, huggingface.read_tokenizer))
            with pytest.raises(ValueError, match="the tokenizer gives other ids here"):
                imported(theirs / "roberta", tmp_path / "ours")


def _without_merge_of(text, read):
    """`read_tokenizer` whose tokenizer drops the last token of a text."""

    def read_otherwise(folder, **options):
        foreign = read(folder, **options)
        encode = foreign.tokenizer.encode
        foreign.tokenizer.encode = lambda one: encode(one)[: -1 if one.strip() == text.strip() else None]
        return foreign

    return read_otherwise
