"""`roberta pretrain TEXT --finetune-from-model MODEL`: one command for a model of transformers, or of fairseq."""

import shutil

import pytest
import torch

from roberta_plugin.data.vocabulary import Vocabulary
from tests.tiny_conversions import exported, write_checkpoint
from tests.tiny_corpus import command, run, run_here

pytestmark = pytest.mark.integration

SHORT = ("--recipe", "tour", "--updates", "20", "--cpu", "--seed", "3", "--lr", "1e-4")


def pretrain(*words, capture=None):
    """Run the command; with pytest's `capture` one that trains nothing, as a call in this process."""
    arguments = ["pretrain", *map(str, words)]
    return run([*command("roberta"), *arguments]) if capture is None else run_here(["roberta", *arguments], capture)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "text.txt"
    path.write_text("".join(f"The quick brown fox jumps over the lazy dog.\nLine {n}.\n\n" for n in range(200)))
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of transformers with its own epsilon, and one of fairseq; neither is like a recipe's."""
    folder = tmp_path_factory.mktemp("models")
    theirs = exported(write_checkpoint(folder / "ours", layer_norm_eps=1e-12), folder / "theirs").folder
    return {"transformers": theirs, "fairseq": write_checkpoint(folder / "fairseq", arch="roberta")}


def options_in(run_folder):
    state = torch.load(run_folder / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    return state["cfg"]["model"], len(state["model"]["encoder.sentence_encoder.embed_tokens.weight"])


def test_a_model_of_transformers_is_continued_on_text_by_one_command(models, text, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "cache" / "assets"))
    words = (text, "--finetune-from-model", models["transformers"], *SHORT, "--output-dir", tmp_path / "run")
    shown = pretrain(*words, "--dry-run", capture=capfd)
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert f"start    {models['transformers']}: 3 layers x 24, 4 heads" in shown.stdout and "eps 1e-12" in shown.stdout
    assert not (tmp_path / "run").exists()
    done = pretrain(*words)
    assert done.returncode == 0, done.stderr[-3000:]
    model = options_in(tmp_path / "run")[0]
    assert (model["encoder_layers"], model["encoder_embed_dim"], model["layer_norm_eps"]) == (3, 24, 1e-12)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "Loaded checkpoint" in log and "No existing checkpoint" not in log and "different architecture" not in log

    shutil.rmtree(tmp_path / "cache")  # nothing is left of the model, and the training goes on
    models["transformers"].rename(tmp_path / "away")
    again = pretrain(*words)
    (tmp_path / "away").rename(models["transformers"])
    assert again.returncode == 0, again.stderr[-3000:]
    assert "Nothing to do" in (tmp_path / "run" / "train.log").read_text()


def test_a_model_of_fairseq_gets_the_vocabulary_of_the_text_where_that_is_asked_for(models, text, tmp_path, capfd):
    words = (text, "--finetune-from-model", models["fairseq"], *SHORT, "--vocab-size", "320")
    done = pretrain(*words, "--output-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr[-3000:]
    model, num_symbols = options_in(tmp_path / "run")
    assert (model["encoder_layers"], num_symbols) == (3, len(Vocabulary.load(tmp_path / "run/data-bin/dict.txt")))
    assert num_symbols != len(Vocabulary.load(models["fairseq"] / "dict.txt"))
    assert f"Loaded checkpoint {tmp_path}/run/start/model.pt" in (tmp_path / "run" / "train.log").read_text()
    words = (tmp_path / "run" / "data-bin", "--finetune-from-model", models["fairseq"], *SHORT)
    refused = pretrain(*words, "--output-dir", tmp_path / "on", capture=capfd)
    assert refused.returncode == 2 and "was made with another dict.txt than --finetune-from-model" in refused.stderr
