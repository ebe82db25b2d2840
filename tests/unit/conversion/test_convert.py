"""Exports and imports: what is refused, and by which sentence; the folder that is written; the card."""

import io
import json
import shutil
import tarfile

import pytest
import torch
import yaml

from roberta_plugin.cli import main
from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.conversion.huggingface_vocabulary import changed_places
from roberta_plugin.conversion.pretrained import open_pretrained
from roberta_plugin.data.vocabulary import Row, Vocabulary
from roberta_plugin.experiments.finetuning_start import starting_model
from roberta_plugin.models.checkpoints.loading import load_state
from tests.tiny_conversions import write_checkpoint


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("ours"), "classification")


@pytest.fixture
def theirs(ours, tmp_path):
    return export_model(ExportSettings(checkpoint=ours, to="huggingface", output_dir=tmp_path / "theirs")).folder


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "bert"}, r"model_type is 'bert', which is not read: only roberta, xlm-roberta, camembert"),
        ({"position_embedding_type": "relative_key"}, r"position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, r"is_decoder is True"),
        ({"hidden_act": "silu"}, r"hidden_act must be one of .*gelu.*, got 'silu'"),
        ({"num_hidden_layers": "two"}, r"num_hidden_layers must be a whole number above 0, got 'two'"),
        ({"architectures": ["RobertaForCausalLM"]}, r"'RobertaForCausalLM', which has no counterpart here"),
        ({"problem_type": "multi_label_classification"}, r"heads here choose one class"),
        ({"vocab_size": 100}, r"tokenizer\.json: the tokenizer has the id 267, and the model embeddings of 100"),
        ({"vocab_size": 300}, r"embeddings of 268 symbols, and the vocabulary of .* has 300"),
        ({"hidden_size": 48}, r"the parameters do not fit the model"),
        ({"architectures": ["RobertaForMaskedLM"]}, r"classifier\.dense\.\w+ has no counterpart"),
    ],
)
def test_a_folder_of_another_model_is_refused(theirs, changes, words):
    change_config(theirs, **changes)
    with pytest.raises(ValueError, match=words) as found:
        open_pretrained(theirs)
    assert "\n" not in str(found.value)


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
    with pytest.raises(FileNotFoundError, match=words):
        open_pretrained(theirs)


def test_damaged_files_are_named(theirs):
    whole = (theirs / "model.safetensors").read_bytes()
    (theirs / "model.safetensors").write_bytes(whole[:200])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or no safetensors file"):
        open_pretrained(theirs)
    (theirs / "model.safetensors").unlink()
    index = {"weight_map": {"roberta.embeddings.word_embeddings.weight": "../ours/secret.safetensors"}}
    (theirs / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"'\.\./ours/secret\.safetensors' is not the name of a file in this folder"):
        open_pretrained(theirs)
    (theirs / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        open_pretrained(theirs)


def test_weights_that_would_run_code_are_refused(theirs, tmp_path):
    from tests.tiny_checkpoints import Payload

    (theirs / "model.safetensors").unlink()
    torch.save({"x": Payload(open, str(tmp_path / "ran"), "w")}, theirs / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        open_pretrained(theirs)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../model.pt", "/tmp/model.pt", "a/../../dict.txt"])
def test_an_archive_with_paths_out_of_its_folder_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as out:
        member = tarfile.TarInfo(name)
        member.size = 1
        out.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(ValueError, match=r"contains the path .* leads out of its folder"):
        open_pretrained(tmp_path / "a.tar.gz")


def test_archives_with_links_or_without_a_model_are_refused(tmp_path):
    with tarfile.open(tmp_path / "link.tar", "w") as out:
        member = tarfile.TarInfo("roberta/model.pt")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(member)
    with pytest.raises(ValueError, match=r"roberta/model\.pt is a link"):
        open_pretrained(tmp_path / "link.tar")
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    with pytest.raises(ValueError, match=r"holds no model\.pt"):
        open_pretrained(tmp_path / "empty.tar.gz")
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "empty.tar.gz").read_bytes()[:15])
    with pytest.raises(ValueError, match=r"is damaged or no tar archive"):
        open_pretrained(tmp_path / "cut.tar.gz")


def test_unknown_formats_heads_and_folders_are_refused(ours, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"The format of .*notes is not known\. Known are"):
        import_model(ImportSettings(source=tmp_path / "notes", output_dir=tmp_path / "new"))
    with pytest.raises(FileNotFoundError, match=r"There is no .*nowhere"):
        import_model(ImportSettings(source=tmp_path / "nowhere", output_dir=tmp_path / "new"))
    with pytest.raises(ValueError, match=r"notes holds something else than an earlier export or import"):
        export_model(ExportSettings(checkpoint=ours, to="huggingface", output_dir=tmp_path / "notes"))
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"
    with pytest.raises(ValueError, match=r"no head called 'mnli': it has masked_lm, sentence_classification_head"):
        export_model(ExportSettings(checkpoint=ours, to="fairseq", output_dir=tmp_path / "new", head="mnli"))
    with pytest.raises(ValueError, match=r"--labels names 2 classes, and the head .* has 3"):
        export_model(ExportSettings(checkpoint=ours, to="fairseq", output_dir=tmp_path / "new", labels=("a", "b")))
    spans = write_checkpoint(tmp_path / "spans", "question_answering")
    with pytest.raises(ValueError, match=r"fairseq's RoBERTa has no such head: use --to huggingface"):
        export_model(ExportSettings(checkpoint=spans, to="fairseq", output_dir=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_with_another_vocabulary_or_none_is_refused(ours, tmp_path):
    shutil.copytree(ours, tmp_path / "copy")
    Vocabulary([Row("1", 1)]).save(tmp_path / "copy" / "dict.txt")
    with pytest.raises(ValueError, match=r"embeddings of 268 symbols, and the vocabulary of .*dict\.txt has 6"):
        open_pretrained(tmp_path / "copy")
    state = load_state(ours / "model.pt")
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    (tmp_path / "alone").mkdir()
    torch.save(state, tmp_path / "alone" / "model.pt")
    with pytest.raises(FileNotFoundError, match=r"No dict\.txt for .*alone/model\.pt"):
        open_pretrained(tmp_path / "alone")


@pytest.mark.parametrize("option", ["activation_fn", "pooler_activation_fn"])
def test_models_that_hugging_face_cannot_express_are_refused(tmp_path, option):
    kind = "masked_lm" if option == "activation_fn" else "classification"
    folder = write_checkpoint(tmp_path / "ours", kind, **{option: "relu"})
    with pytest.raises(ValueError, match=r"no counterpart among Hugging Face's classes: its .*head has the activation"):
        export_model(ExportSettings(checkpoint=folder, to="huggingface", output_dir=tmp_path / "new"))


def test_an_earlier_export_is_replaced_as_a_whole(ours, theirs):
    (theirs / "model-00001-of-00002.safetensors").touch()
    export_model(ExportSettings(checkpoint=ours, to="fairseq", output_dir=theirs))
    names = "NOTE README.md conversion.json dict.txt encoder.json merges.txt model.pt vocab.bpe vocab.json"
    assert sorted(path.name for path in theirs.iterdir()) == names.split()


def test_the_card_has_the_metadata_of_the_hub_and_the_runs_figures(ours, tmp_path):
    folder = tmp_path / "out" / "runs" / "a" / "checkpoints"
    shutil.copytree(ours, folder)
    state = load_state(folder / "model.pt")
    state["cfg"]["optimization"] = {"lr": [1e-5], "update_freq": [2]}
    state["cfg"]["dataset"] = {"batch_size": 4}
    state["cfg"]["task"]["tokens_per_sample"] = 40
    state["extra_state"]["previous_training_time"] = 5400
    torch.save(state, folder / "model.pt")
    (tmp_path / "out" / "results").mkdir()
    (tmp_path / "out" / "results" / "results.md").write_text("| task | accuracy |\n|---|---|\n| RTE | 86.6 |\n")
    settings = ExportSettings(checkpoint=folder, to="huggingface", output_dir=tmp_path / "card", license="mit")
    card = (export_model(settings).folder / "README.md").read_text()
    metadata = yaml.safe_load(card.split("---")[1])
    assert metadata == {
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["roberta", "classification"],
    }
    for words in ("no, perhaps, yes", "hours: 1.5", "updates: 3", "tokens (full blocks): 960", "FLOPs", "86.6", "mit"):
        assert words in card
    assert "Fine-tuned on: made up" in card


def test_finetune_says_how_to_start_from_another_format(theirs):
    with pytest.raises(ValueError, match=r"Import it first: roberta import .*theirs --output-dir"):
        starting_model(theirs)
    with pytest.raises(ValueError, match=r"Import it first"):
        starting_model(theirs / "model.safetensors")


def test_finetune_starts_from_an_imported_folder(theirs, tmp_path):
    back = import_model(ImportSettings(source=theirs, output_dir=tmp_path / "back")).folder
    assert starting_model(back).checkpoint == back / "model.pt"
    assert starting_model(back).max_positions == 40


def test_the_commands_do_the_same(ours, theirs, tmp_path, capsys):
    assert main(["export", str(ours), "--to", "huggingface", "--output-dir", str(tmp_path / "a")]) == 0
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
    assert main(["import", str(tmp_path / "a"), "--output-dir", str(tmp_path / "b"), "--labels", "x", "y", "z"]) == 0
    assert open_pretrained(tmp_path / "b").labels == {"sentence_classification_head": ("x", "y", "z")}
    assert main(["import", str(tmp_path / "none"), "--output-dir", str(tmp_path / "c")]) == 2
    assert "There is no" in capsys.readouterr().err


def test_camemberts_symbols_change_places():
    symbols = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "a", "<mask>"]
    order = changed_places(symbols)
    assert order.tolist() == [5, 1, 6, 3, 4, 0, 2, 7, 8]
    assert order[order].tolist() == list(range(9))
    assert changed_places(["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]) is None
