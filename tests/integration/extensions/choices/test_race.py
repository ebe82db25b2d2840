"""The real `fairseq-train` on multiple choice: it learns, and keeps the best checkpoint. Resumed: test_finetune_ranks."""

import json
from pathlib import Path

import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks import kind_of
from tests.tiny_benchmarks import official, prepared_of
from tests.tiny_corpus import finetune_command, logged, run
from tests.tiny_race import write_race

pytestmark = pytest.mark.integration

LENGTH = 120


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of(
        "race", write_race(folder / "raw", train=120, dev=40), folder / "set", max_length=LENGTH, question_length=60
    )


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
    found = official(race, trained / "checkpoint_best.pt", tmp_path)
    assert found["accuracy"] == pytest.approx(best, abs=1e-3)
    lines = [json.loads(line) for line in (tmp_path / "valid.predictions.jsonl").read_text().splitlines()]
    right = sum(
        "ABCD".index(line["answer"]) == label
        for line, label in zip(lines, race.split("valid").columns["label"], strict=True)
    )
    assert 100 * right / len(lines) == found["accuracy"]


def test_fairseqs_own_roberta_trains_on_it(race, tmp_path):
    arguments = train_command(race.folder, tmp_path / "checkpoints", "--lr", "1e-3", "--max-update", "12", "--no-save")
    arguments[arguments.index("fast_roberta_tiny")] = "roberta_base"
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "model: RobertaModel" in done.stdout + done.stderr
    assert "valid_accuracy_high" in logged(tmp_path / "checkpoints", "valid")[-1]
