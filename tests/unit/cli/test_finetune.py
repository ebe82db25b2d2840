"""`roberta finetune`: what it asks the sweep for; whole procedures are in tests/integration/test_finetune.py."""

import argparse
import json

import pytest
import torch

from roberta_plugin.cli import finetune, main, sweep
from roberta_plugin.finetuning import inference
from tests.tiny_models import our_model
from tests.tiny_suites import write_prepared


def parse(*words):
    parser = argparse.ArgumentParser()
    finetune.add_parser(parser.add_subparsers())
    return parser.parse_args(["finetune", *map(str, words)])


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A call for a prepared folder and a checkpoint that fits it; nothing is trained."""
    monkeypatch.setattr(sweep, "do", lambda args: {"states": {}, "num_runs": 1, "failures": {}, "asked": args})
    prepared = write_prepared(tmp_path / "set", task="RTE", num_options=1)
    state = our_model().state_dict()
    size = len(prepared.vocabulary)
    for name in ("encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight"):
        state[name] = torch.zeros(size, 24)
    found = {"model": state, "cfg": {"model": {"_name": "fast_roberta", "encoder_attention_heads": 4}}}
    monkeypatch.setattr(inference, "load_state", lambda checkpoint: found)
    return ["RTE", "--data", prepared.folder, "--model", tmp_path / "model.pt", "--folder", tmp_path / "out"]


def grid_of(args):
    return json.loads((args.folder / finetune.GRID).read_text())


def test_the_grid_is_the_papers_and_the_start_is_questioned(words, capsys):
    args = parse(*words)
    assert args.run(args) == 0
    grid = grid_of(args)
    assert grid["axes"]["lr"] == ["1e-5", "2e-5", "3e-5"]
    assert grid["seeds"] == ["1", "2", "3", "4", "5"]
    assert grid["train"]["encoder-layers"] == "3"
    assert "The paper starts RTE from its MNLI model" in capsys.readouterr().out


@pytest.mark.parametrize(("asked", "is_cpu"), [((), True), (("gpus_per_node=1",), False)])
def test_a_cluster_is_asked_for_gpus_whatever_the_login_node_has(words, asked, is_cpu):
    args = parse(*words, "--slurm", "partition=gpu", *asked, "--parallel", 7)
    facts = finetune.train(args, finetune.write_grid(args, finetune.prepared_data(args)))
    assert facts["asked"].slurm
    assert facts["asked"].wait
    assert facts["asked"].parallel == 7
    assert grid_of(args)["slurm"]["partition"] == "gpu"
    assert (grid_of(args)["train"].get("cpu") == "true") is is_cpu


def test_epochs_change_the_schedule(words):
    args = parse(*words, "--epochs", 3, "--only", "batch=16")
    finetune.write_grid(args, finetune.prepared_data(args))
    assert grid_of(args)["axes"]["batch"]["16"]["max-update"] == str(3 * 3)  # 40 examples
    args = parse(*words, "--epochs", 0)
    with pytest.raises(ValueError, match="--epochs must be 1 or more, got 0"):
        args.run(args)


def test_data_for_another_task_and_a_model_too_short_are_refused(words, tmp_path):
    args = parse("CoLA", *words[1:])
    with pytest.raises(ValueError, match="is prepared for RTE, not for CoLA"):
        args.run(args)
    path = tmp_path / "set" / "prepared.json"
    path.write_text(path.read_text().replace('"max_length": 30', '"max_length": 90'))
    args = parse(*words)
    with pytest.raises(ValueError, match=r"has 40 positions, and .* sequences of up to 90 tokens"):
        args.run(args)
    args = parse(*words, "--model", tmp_path)
    with pytest.raises(FileNotFoundError, match="names no finished run"):
        args.run(args)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"junk\n" * 50, "cannot be read as a checkpoint"),
        (b"", "is empty"),
        ("hugging face", "is a state dict of Hugging Face"),
        ("cut off", "cannot be read as a checkpoint"),
        ("other model", "is no checkpoint of a RoBERTa"),
    ],
)
def test_a_model_that_is_none_is_refused_in_one_line_that_names_it(tmp_path, capsys, content, sentence):
    path = tmp_path / "start.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "other model":
        torch.save({"model": {"decoder.weight": torch.ones(300)}}, path)
    else:
        torch.save({"roberta.embeddings.weight": torch.ones(300)}, path)
    if content == "cut off":
        path.write_bytes(path.read_bytes()[:700])
    folder = write_prepared(tmp_path / "set", num_options=1).folder
    words = ["finetune", "RTE", "--data", folder, "--model", path, "--folder", tmp_path / "out"]
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert str(path) in error
    assert error.count("\n") == 1
