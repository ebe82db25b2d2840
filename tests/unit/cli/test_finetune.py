"""`roberta finetune`: what it asks the sweep for; whole procedures are in tests/integration/extensions/test_finetune.py."""

import argparse
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.cli import build_parser, main
from roberta_plugin.cli.finetuning import finetune
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.experiments import finetune as procedure
from roberta_plugin.experiments import finetuning_plan, inference
from roberta_plugin.experiments import starting_model as starting
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.experiments.sweeps import sweep
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.report import write_report
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.prepared import Prepared
from tests.made_extension.benchmark import MadeOptions
from tests.tiny_benchmarks import MERGES, words_tokenizer, write_made, write_prepared, write_tokenizer
from tests.tiny_models import our_model

REAL_SWEEP = sweep.train_grid


def parse(*words):
    return build_parser("finetune").parse_args(["finetune", *map(str, words)])


def run(*words):
    args = parse(*words)
    return args.run(args)


def test_results_are_not_scored_anew_by_options(tmp_path, capsys):
    words = ["evaluate", "--results", str(tmp_path), "--output-dir", str(tmp_path / "out"), "--made-draws", "3"]
    assert main(words) == 2
    assert "--made-draws goes with --data and --checkpoint" in capsys.readouterr().err


@pytest.fixture
def model_state():
    """What a checkpoint with 40 positions and the vocabulary of `words_tokenizer` holds."""
    state = our_model().state_dict()
    size = len(words_tokenizer()[1])
    for name in ("encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight"):
        state[name] = torch.zeros(size, 24)
    return {"model": state, "cfg": {"model": {"_name": "fast_roberta", "encoder_attention_heads": 4}}}


def report(facts):
    return sweep.SweepReport(output_dir=Path(), facts=facts)


@pytest.fixture
def words(tmp_path, monkeypatch, model_state):
    """A call for a prepared folder and a checkpoint that fits it; nothing is trained."""
    facts = {"states": {}, "num_runs": 1, "failures": {"a": {"reason": "exit code 1"}}, "best_cell": None, "cells": []}
    monkeypatch.setattr(sweep, "train_grid", lambda grid, settings, say: report(facts | {"asked": settings}))
    prepared = write_prepared(tmp_path / "set", num_options=1)
    monkeypatch.setattr(starting, "load_state", lambda checkpoint: model_state)
    (tmp_path / "model.pt").touch()  # trainings start from files that are there
    return ["made", "--data", prepared.folder, "--model", tmp_path / "model.pt", "--output-dir", tmp_path / "out"]


def plan_of(*words):
    return finetuning_plan.plan_finetuning(*finetune.settings_of(parse(*words)))


def grid_of(*words):
    """The file that the plan of a call writes."""
    plan_of(*words)
    return json.loads((Path(parse(*words).output_dir) / finetuning_plan.GRID).read_text())


def test_the_grid_is_the_papers_and_the_start_is_questioned(words, model_state, capsys):
    assert run(*words) == 1, "nothing was trained"
    assert "The paper starts made from its made-too model" in capsys.readouterr().out
    grid = grid_of(*words)
    assert grid["axes"]["lr"] == ["1e-5", "2e-5", "3e-5"]
    assert grid["seeds"] == ["1", "2", "3", "4", "5"]
    assert grid["train"]["encoder-layers"] == "3"
    model_state["model"]["classification_heads.mnli.out_proj.bias"] = torch.zeros(3)
    assert run(*words) == 1
    assert "The paper starts" not in capsys.readouterr().out, "fine-tuned, whatever its file is called"


@pytest.mark.parametrize(
    ("asked", "is_cpu", "ranks", "size"), [((), True, "1", "16"), (("gpus_per_node=4",), False, "4", "4")]
)
def test_a_cluster_is_asked_for_gpus_whatever_the_login_node_has_and_they_share_the_batch(
    words, asked, is_cpu, ranks, size
):
    words += ["--slurm", "partition=gpu", "time=1:00:00", *asked, "--parallel", 7]
    sweep_asked = procedure.run_grid(plan_of(*words), report=print).facts["asked"]
    assert sweep_asked.after.func is procedure.compute_outputs, "in the jobs, where the GPUs are"
    keywords = sweep_asked.after.keywords
    assert keywords["data"] == words[2].resolve() and keywords.keys() == {"data", "options"}, "as earlier code has them"
    assert sweep_asked.slurm is not None and sweep_asked.wait
    assert (sweep_asked.parallel, sweep_asked.job_name) == (7, "made-out")
    grid = grid_of(*words)
    assert grid["slurm"]["partition"] == "gpu"
    assert (grid["train"].get("cpu") == "true") is is_cpu
    assert grid["train"]["distributed-world-size"] == ranks
    batch = grid["axes"]["batch"]["16"]
    assert (batch["batch-size"], batch["update-freq"], batch["max-update"]) == (size, "1", "30")  # 40 examples


def test_where_no_files_are_given_it_is_said(words):
    with pytest.raises(ValueError, match=r"--raw is.* Or give a prepared folder by --data"):
        plan_of("made", *words[3:])


def test_a_batch_takes_any_number_as_a_learning_rate_does_and_epochs_change_the_schedule(words):
    assert len(Prepared.open(words[2]).split("train")) == 40
    for quick in ((), ("--quick",)):
        asked = (*words, *quick, "--only", "batch=4,64", "--only", "lr=7e-4", "--epochs", "3", "--seeds", "1")
        batches = grid_of(*asked)["axes"]["batch"]
        assert {name: each["batch-size"] for name, each in batches.items()} == {"4": "4", "64": "64"}
        assert [each["max-update"] for each in batches.values()] == [str(3 * 10), str(3 * 1)]
        assert len(plan_of(*asked).grid.runs) == 2


def test_random_weights_begin_as_those_of_the_models_own_pretraining(words, model_state):
    neighbors = {"init_std": "width", "init_attention": "neighbors", "zero_init_residual": True}
    expected = {"init-std": "width", "init-attention": "neighbors", "zero-init-residual": "true"}
    for saved, flags, options in (
        (neighbors, ("--from-scratch",), expected),
        (neighbors, (), {}),
        ({"init_std": "0.02", "init_attention": "random", "zero_init_residual": False}, ("--from-scratch",), {}),
        (neighbors, ("--from-scratch", "--set", "init-std=0.01"), expected | {"init-std": "0.01"}),
        # A fine-tuning has no text to count.
        (neighbors | {"init_attention": "counts"}, ("--from-scratch",), expected),
    ):
        model_state["cfg"]["model"] |= saved
        train = grid_of(*words, *flags)["train"]
        assert {name: train[name] for name in expected if name in train} == options
    model_state["cfg"]["model"]["_name"] = "roberta_base"
    assert not expected.keys() & grid_of(*words, "--from-scratch")["train"].keys(), "fairseq's own models"


def test_data_that_do_not_fit_are_refused_before_anything_is_trained(words, tmp_path):
    path = words[2] / "prepared.json"
    sound = path.read_text()
    for old, new, error, message in (
        ('"valid"', '"dev"', ValueError, "has no split 'valid' to choose checkpoints by; it has train, dev"),
        ('"max_length": 30', '"max_length": 90', ValueError, r"has 40 positions, and .* sequences of up to 90 tokens"),
        ('"task": "made"', '"task": "made-plain"', ValueError, "is prepared for made-plain, not for made"),
    ):
        path.write_text(sound.replace(old, new))
        with pytest.raises(error, match=message):
            run(*words)
    path.write_text(sound)
    with pytest.raises(FileNotFoundError, match="No checkpoint in "):
        run(*words, "--model", words[2])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--device", "nowhere"), "--device nowhere cannot be used here"),
        (("--only", "lr="), "--only lr=: a value is empty"),
        (("--only", "lr=1e-3,"), "--only lr=1e-3,: a value is empty"),
        (("--only", "batch=8,x"), "--only batch=8,x: a batch is a whole number of examples from 1 on, got 'x'"),
        (("--set", "freeze-layers=4"), "--freeze-layers 4: the model has 3 layers"),
        (("--set", "freeze-layers=3", "--set", "lora-rank=2"), "--freeze-layers 3 leaves no layer for the adapters"),
        (("--set", "adam_eps=1", "--set", "adam-eps=2"), "--set gives adam_eps twice"),
        (("--set", "no-save=true"), "--set no-save=true: the result of a run is its best checkpoint"),
        (("--set", "no-last-checkpoints=true", "--checkpoint", "last"), "the result of a run is its last checkpoint"),
        (("--slurm", "time=1:00:00", "gpu=2"), "--slurm has the unknown key 'gpu'"),
        (("--slurm", "partition=gpu"), "--slurm needs a time limit for a run: --slurm time=8:00:00"),
        (("--made-ties", "--tokenizer", "/none"), "--made-ties is not an option of made: it has --made-length, "),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(words, option, message):
    with pytest.raises(ValueError, match=message):
        run(*words, *option)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"junk\n" * 50, "cannot be read as a checkpoint"),
        (b"", "is empty"),
        ("hugging face", "is a state dict of Hugging Face"),
        ("cut off", "cannot be read as a checkpoint"),
        ("other model", "does not say which model it is"),
    ],
)
def test_a_model_that_is_none_is_refused_in_one_line_that_names_it(tmp_path, capsys, content, sentence):
    path = tmp_path / "start.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        weight = {"roberta.embeddings.weight": torch.ones(300)}
        torch.save({"model": {"decoder.weight": torch.ones(300)}} if content == "other model" else weight, path)
    if content == "cut off":
        path.write_bytes(path.read_bytes()[:700])
    folder = write_prepared(tmp_path / "set", num_options=1).folder
    words = ["finetune", "made", "--data", folder, "--model", path, "--output-dir", tmp_path / "out"]
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert sentence in error and str(path) in error and error.count("\n") == 1


@pytest.fixture
def raw(words, tmp_path):
    """A call that prepares: official files, a tokenizer, no --data."""
    write_made(tmp_path / "official", train=24, valid=9, test=6)
    given = {"--raw": tmp_path / "official", "--tokenizer": write_tokenizer(tmp_path / "tokenizer")}
    given |= {"--model": words[words.index("--model") + 1], "--output-dir": tmp_path / "out"}
    return ["made", *(word for pair in given.items() for word in pair), "--grid-only"]


def test_rotary_positions_take_a_longer_max_length_and_tell_it(raw, model_state, capsys):
    del model_state["model"]["encoder.sentence_encoder.embed_positions.weight"]
    model_state["cfg"]["model"] |= {"position_encoding": "rotary", "attention_window": 8, "max_positions": 40}
    assert run(*raw, "--max-length", "50") == 0
    found = capsys.readouterr()
    assert "was trained with at most 40 tokens, and" in found.out + found.err
    wanted = {"max-positions": "50", "position-encoding": "rotary", "attention-window": "8"}
    assert wanted.items() <= grid_of(*raw, "--max-length", "50")["train"].items()


def test_without_max_length_it_is_what_the_model_has(raw, tmp_path):
    assert run(*raw) == 0
    assert Prepared.open(tmp_path / "out" / "data").settings["max_length"] == 40
    assert run(*raw) == 0, "the same command again is the same preparation"
    with pytest.raises(ValueError, match=r"--max-length 50: .*model\.pt has 40 positions"):
        run(*raw, "--max-length", "50", "--output-dir", tmp_path / "out" / "other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--max-length", "30"), "--max-length was 40 and is 30 now"),
        (("--tokenizer", "{tmp}/german"), "--tokenizer was .*sha256 .* and is .* now"),
        (("--raw", "{tmp}/more"), r"--raw was 3 files with [0-9,]+ bytes \(SHA-256 \w{8}\) and is 3 files with .* now"),
    ],
)
def test_a_folder_prepared_otherwise_is_refused_with_each_difference(raw, tmp_path, changes, message):
    run(*raw)
    write_made(tmp_path / "more", train=25, valid=9, test=6)
    tokenizer, vocabulary = words_tokenizer()
    pieces = list(tokenizer.pieces)
    pieces[256:258] = reversed(pieces[256:258])
    (tmp_path / "german").mkdir()
    ByteLevelBpe(pieces, MERGES).save(tmp_path / "german")
    vocabulary.save(tmp_path / "german" / "dict.txt")
    changes = [word.format(tmp=tmp_path) for word in changes]
    with pytest.raises(ValueError, match=f"was prepared with other settings than this command gives: {message}.*rm -r"):
        run(*raw, *changes)
    if "--raw" not in changes:
        with pytest.raises(ValueError, match=message):
            run("made", *raw[5:], *changes)


def test_what_a_command_does_not_say_is_not_compared(raw):
    run(*raw, "--max-length", "30")
    assert run("made", *raw[5:]) == 0
    with pytest.raises(ValueError, match="--max-length was 30 and is 40 now"):
        run(*raw)


def test_options_are_those_of_the_task(words):
    asked = (*words, "--made-draws", "5", "--made-length", "9")
    said = r"--made-ties is not an option of made: it has --made-length, --made-order, --made-limit, --made-draws"
    with pytest.raises(ValueError, match=said):
        run(*asked, "--made-ties")
    assert finetune.settings_of(parse(*asked))[0].options == MadeOptions(made_draws=5, made_length=9)


def test_options_of_fairseq_train_may_be_spelled_with_underscores_and_resources_as_in_recipes(words):
    grid = grid_of(*words, "--set", "batch_size=4", "--only", "batch=16")
    assert grid["axes"]["batch"]["16"]["update-freq"] == "4"
    grid = grid_of(*words, "--slurm", "time=1:00:00", "gpus-per-node=h100:2", "sbatch.mail-type=END")
    gpus = {"gpus_per_node": 2, "gpu_type": "h100"}
    assert grid["slurm"] == {"time": "1:00:00", "sbatch": ["mail-type=END"], **gpus}


def test_a_model_too_short_for_the_task_is_told_what_to_do(raw):
    with pytest.raises(ValueError, match=r"cannot be more than 40 here, the positions of .*model\.pt: pretrain a"):
        run(*raw, "--made-length", "50")
    with pytest.raises(ValueError, match=r"must be 1 or more, got 0\.?$"):  # the length is not the reason
        run(*raw, "--made-length", "0")
    assert run(*raw, "--made-length", "10") == 0


def test_data_of_another_tokenizer_of_the_same_size_are_refused(words, model_state):
    tokenizer = Prepared.open(words[2]).content["tokenizer"]
    model_state["task_state"] = {identity.KEY: {"tokenizer": tokenizer}}
    assert run(*words, "--grid-only") == 0
    said = r"tokenizer was kind gpt2, sha256 vocab\.bpe f{8} and is kind .* now\. .*with the tokenizer"
    for other, message in (
        ({"tokenizer": {"kind": "gpt2", "sha256": {"vocab.bpe": "f" * 64}}}, said),
        ({"vocabulary": "0" * 64}, r"dict\.txt was \w+ and is \w+ now"),
    ):
        model_state["task_state"] = {identity.KEY: other}
        with pytest.raises(ValueError, match=message):
            run(*words, "--grid-only")


def test_settings_are_resolved_once_and_the_sweep_gets_the_grid_itself(words, monkeypatch):
    real, calls, asked = sweep.train_arguments.check_options, [], []

    def count(parsed):
        calls.append(parsed)
        real(parsed)

    def to_do(folders, queued):
        asked.extend(folders)
        return []

    monkeypatch.setattr(sweep, "train_grid", REAL_SWEEP)
    monkeypatch.setattr(sweep.train_arguments, "check_options", count)
    monkeypatch.setattr(sweep, "to_do", to_do)
    run(*words, "--quick")
    assert len(calls) == 1
    (of_file,) = read_grid(words[-1] / finetuning_plan.GRID).runs
    assert [folder.run for folder in asked] == [of_file], "the file says what is run"


@pytest.mark.parametrize("waiting", [0, 1])
def test_one_failed_run_of_thirty_does_not_keep_the_table_from_being_written(words, monkeypatch, capsys, waiting):
    def train(grid, settings, say):
        root = settings.output_dir.resolve()
        folders = sweep.prepare(grid, root)
        failed, *rest = sorted(folders, key=lambda folder: "lr-1e-5" not in folder.run.cell)
        failed._write("failure.json", {"reason": "exit code 1: try a lower --lr", "attempts": 1})
        for folder in rest[: len(rest) - waiting]:
            folder._write("result.json", {"value": 50 + ("2e-5_batch-16" in folder.run.cell), "metric": {}})
        return report(write_report(grid, folders, root=root, ensemble_size=5, in_words=settings.in_words))

    evaluated = []

    def evaluate(settings):
        evaluated.extend({path.parts[-4] for path in settings.checkpoints})
        return [Evaluation(task="made", split="valid", members=(), median={}, ensemble={})]

    monkeypatch.setattr(sweep, "train_grid", train)
    monkeypatch.setattr(procedure, "evaluate", evaluate)
    monkeypatch.setattr(procedure, "write_report", lambda *_: "the table")
    assert run(*words) == 1
    assert evaluated == ([] if waiting else ["lr-2e-5_batch-16"])
    said = "Missing in this table: 1 of 30 runs have failed (lr-1e-5_batch-16/seed-1)"
    assert (said in capsys.readouterr().out) == (not waiting)
    assert "try a lower --only lr=..." in (words[-1] / "runs" / "report.md").read_text(), "not fairseq's --lr"


VALUES = {"1e-5": (50, 60, 10), "2e-5": (49, 51, 52), "3e-5": (40, 41, 42)}  # of the seeds, by learning rate


@pytest.fixture
def trained(raw, monkeypatch):
    """A call whose trainings and models are stand-ins; and the runs that were trained, and those whose model was run."""
    done, computed = [], []

    def train(grid, settings, say):
        folders = sweep.prepare(grid, settings.output_dir.resolve())
        for folder in sweep.to_do(folders, queued=()):
            done.append(folder.run.name)
            (folder.path / "checkpoints").mkdir()
            torch.save({"model": {}, "args": argparse.Namespace()}, folder.path / "checkpoints" / "checkpoint_best.pt")
            value = VALUES[folder.run.settings["lr"]][int(folder.run.seed) - 1]
            folder._write("result.json", {"value": value, "metric": asdict(grid.metric)})
        return report(write_report(grid, folders, root=settings.output_dir.resolve(), ensemble_size=5))

    def run_model(checkpoint, task, split, **options):
        assert checkpoint.is_file()
        computed.append(f"{checkpoint.parts[-4]}/{checkpoint.parts[-3]} {split.name}")
        rng = np.random.default_rng(len(computed))
        return RawOutputs(logits=rng.random((len(split.sequences), 2), dtype=np.float32))

    monkeypatch.setattr(sweep, "train_grid", train)
    monkeypatch.setattr(inference, "load_model", lambda checkpoint, prepared, split: (checkpoint, None))
    monkeypatch.setattr(inference, "run_model", run_model)
    return ["finetune", *(str(word) for word in raw[:-1]), "--only", "batch=16"], done, computed


def with_weights(folder):
    return sorted(str(path.parent.parent.relative_to(folder / "runs")) for path in folder.rglob("checkpoint_best.pt"))


def test_one_cell_first_then_the_grid_then_more_seeds(trained, tmp_path):
    words, done, computed = trained
    assert main([*words, "--only", "lr=1e-5", "--seeds", "1", "2"]) == 0
    assert with_weights(tmp_path / "out") == ["lr-1e-5_batch-16/seed-2"]
    assert main([*words, "--seeds", "1", "2"]) == 0, "the best cell is the same one"
    assert main([*words, "--seeds", "1", "2", "3"]) == 0, "the best cell is another one"
    found = Evaluation.read(tmp_path / "out" / "results" / "evaluation_valid.json")
    assert [Path(member["checkpoint"]).parts[-4:-2] for member in found.members] == [
        ("lr-2e-5_batch-16", f"seed-{seed}") for seed in (1, 2, 3)
    ]
    assert with_weights(tmp_path / "out") == [
        f"lr-{lr}e-5_batch-16/seed-{seed}" for lr, seed in ((1, 2), (2, 3), (3, 3))
    ]
    assert len(done) == len(set(done)) == 9
    assert len(computed) == len(set(computed)), "a model was run twice over a split"


def test_the_same_command_with_the_folder_spelled_otherwise_or_moved(trained, tmp_path, monkeypatch):
    words, done, computed = trained
    words += ["--only", "lr=1e-5", "--seeds", "1", "2", "--output-dir"]
    monkeypatch.chdir(tmp_path)
    assert main([*words, "out"]) == 0
    before = Evaluation.read(tmp_path / "out" / "results" / "evaluation_valid.json")
    num_computed = len(computed)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main([*words, str(tmp_path / "out")]) == 0
    assert main([*words, "../out"]) == 0
    (tmp_path / "out").rename(tmp_path / "elsewhere" / "moved")
    assert main([*words, "moved"]) == 0
    after = Evaluation.read(tmp_path / "elsewhere" / "moved" / "results" / "evaluation_valid.json")
    assert (after.median, after.ensemble) == (before.median, before.ensemble)
    assert (len(done), len(computed)) == (2, num_computed)
    moved = tmp_path / "elsewhere" / "moved"
    best = moved / "runs" / "lr-1e-5_batch-16" / "seed-2" / "checkpoints" / "checkpoint_best.pt"
    assert starting_model(moved).checkpoint == best


def test_a_refused_change_leaves_the_grid_file_as_it_was(trained, tmp_path, capsys):
    words, done, _ = trained
    words += ["--only", "lr=1e-5", "--seeds", "1"]
    assert main(words) == 0
    path = tmp_path / "out" / finetuning_plan.GRID
    before = path.read_text()
    assert main([*words, "--set", "bf16=true", "--set", "dropout=0.2"]) == 2
    error = capsys.readouterr().err
    assert "--set dropout was 0.1 and is 0.2 now; --set bf16 was not given and is given now." in error
    assert main([*words, "--select", "made_error", "--epochs", "3"]) == 2
    error = capsys.readouterr().err
    assert "--epochs, of max-update was" in error and "--select was not given and is made_error now." in error
    assert "best-checkpoint-metric" not in error and "warmup-updates" not in error
    assert path.read_text() == before
    assert len(done) == 1


def test_runs_of_a_model_that_has_changed_since_are_not_taken_for_those_of_the_new_one(
    trained, model_state, capsys, tmp_path
):
    words, done, _ = trained
    words += ["--only", "lr=1e-5", "--seeds", "1"]
    assert main(words) == 0
    model_state["last_optimizer_state"] = None  # the same weights
    assert main(words) == 0
    model = words.index("--model") + 1
    elsewhere = shutil.copytree(Path(words[model]).parent, tmp_path / "elsewhere") / Path(words[model]).name
    assert main([*words[:model], str(elsewhere), *words[model + 1 :]]) == 0
    assert str(elsewhere) in next((tmp_path / "out").rglob("run.json")).read_text()
    assert main(words) == 0
    model_state["model"]["encoder.lm_head.bias"] = model_state["model"]["encoder.lm_head.bias"] + 1
    assert main([*words, "2"]) == 2
    assert re.search(r"--model was \w{8} and is \w{8} now\..*another --output-dir", capsys.readouterr().err)
    assert len(done) == 1


@pytest.mark.parametrize("start", [[], ["--from-scratch"]])
def test_runs_of_other_examples_are_not_taken_for_those_of_the_new_ones(trained, start, tmp_path, capsys):
    words, done, _ = trained
    words += [*start, "--only", "lr=1e-5", "--seeds", "1"]
    assert main(words) == 0
    shutil.rmtree(tmp_path / "out" / "data")
    path = tmp_path / "official" / "train.jsonl"
    path.write_text(path.read_text().replace("good", "bad", 1))  # as many as before
    assert main([*words, "2"]) == 2
    assert f"train of {tmp_path / 'out' / 'data'} was " in capsys.readouterr().err
    assert len(done) == 1
