"""The real `fairseq-train` on multiple choice: it learns, keeps the best checkpoint, resumes, and tells a dead run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.finetuning.benchmarks import benchmark_of, kind_of
from roberta_plugin.finetuning.options import RaceOptions
from tests.tiny_corpus import finetune_command, logged, run, run_ranks
from tests.tiny_race import write_race
from tests.unit.finetuning.benchmarks.race.test_race import prepared_of

pytestmark = pytest.mark.integration

LENGTH = 120


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of("race", write_race(folder / "raw", train=120, dev=40), folder / "set", max_length=LENGTH)


def train_command(data: Path, save_dir: Path, *options: str) -> list[str]:
    how = ("--max-positions", str(LENGTH), "--batch-size", "8", "--weight-decay", "0.1")
    how += ("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric")
    return finetune_command(data, save_dir, "race", *how, *options)


@pytest.fixture(scope="module")
def trained(race, tmp_path_factory):
    save_dir = tmp_path_factory.mktemp("trained") / "checkpoints"
    done = run(train_command(race.folder, save_dir, "--lr", "2e-3", "--max-epoch", "6"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stuck at chance" not in done.stderr
    return save_dir


def test_it_learns_to_answer_well_above_chance(trained, race):
    records = logged(trained, "valid")
    assert len(records) == 6
    assert float(records[-1]["valid_accuracy"]) > 80
    assert {f"valid_{name}" for name in kind_of(race).selectable()} <= records[-1].keys()
    middle, high, both = (float(records[-1][f"valid_accuracy{end}"]) for end in ("_middle", "_high", ""))
    assert both == pytest.approx((middle + high) / 2, abs=1e-3), "as many questions of either level"
    assert float(records[-1]["valid_loss"]) < np.log(4) / 2


def test_the_best_checkpoint_gives_the_accuracy_of_the_log(trained, race, tmp_path):
    best = max(float(record["valid_accuracy"]) for record in logged(trained, "valid"))
    model, task = load_model(trained / "checkpoint_best.pt", race)
    outputs = run_model(model, task, race.split("valid"))
    found = benchmark_of("race").score(race, "valid", [outputs], folder=tmp_path, options=RaceOptions())
    assert found["accuracy"] == pytest.approx(best, abs=1e-3)
    lines = [json.loads(line) for line in (tmp_path / "valid.predictions.jsonl").read_text().splitlines()]
    right = sum(
        "ABCD".index(line["answer"]) == label
        for line, label in zip(lines, race.split("valid").columns["label"], strict=True)
    )
    assert 100 * right / len(lines) == found["accuracy"]


@pytest.mark.slow
def test_a_run_goes_on_where_it_ended(trained, race, tmp_path):
    save_dir = tmp_path / "checkpoints"
    for epochs in ("3", "6"):
        done = run(train_command(race.folder, save_dir, "--lr", "2e-3", "--max-epoch", epochs))
        assert done.returncode == 0, done.stderr[-3000:]
    one, other = (
        torch.load(folder / "checkpoint_last.pt", weights_only=True)["model"] for folder in (trained, save_dir)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow  # all kinds gather a validation in one way: by default, GLUE and tags
def test_two_ranks_count_every_question_once(race, tmp_path):
    """9 batches of validation for 2 ranks: one of them gets a batch that must not count."""
    save_dir = tmp_path / "checkpoints"
    options = ("--lr", "1e-3", "--max-update", "14", "--batch-size-valid", "9")
    run_ranks(train_command(race.folder, save_dir, *options), 2)
    assert int(logged(save_dir, "train_inner")[-1]["num_updates"]) >= 10

    records = logged(save_dir, "valid")
    model, task = load_model(save_dir / "checkpoint_last.pt", race)
    found = benchmark_of("race").score(
        race, "valid", [run_model(model, task, race.split("valid"))], folder=None, options=RaceOptions()
    )
    assert {name: float(records[-1][f"valid_{name}"]) for name in found} == pytest.approx(found, abs=1e-3)


def test_fairseqs_own_roberta_trains_on_it(race, tmp_path):
    arguments = train_command(race.folder, tmp_path / "checkpoints", "--lr", "1e-3", "--max-update", "12", "--no-save")
    arguments[arguments.index("fast_roberta_tiny")] = "roberta_base"
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "model: RobertaModel" in done.stdout + done.stderr
    assert "valid_accuracy_high" in logged(tmp_path / "checkpoints", "valid")[-1]
