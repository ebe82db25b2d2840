"""What the benchmark tells `roberta finetune` and `roberta evaluate`."""

import json

import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.kinds.outputs import RawOutputs
from tests.tiny_race import write_lines, write_race
from tests.unit.finetuning.race.test_prepare import prepared_of


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of("race", write_race(folder / "raw", train=101, dev=10), folder / "set")


def outputs_that_answer(split, given):
    scores = np.zeros((len(split.sequences), 1), dtype=np.float32)
    scores[split.offsets[:-1] + given] = 2.0
    return RawOutputs(logits=scores)


def test_the_recipe_is_the_papers_table_10(race):
    recipe = benchmark_of("race").recipe(race)
    assert recipe.seeds == ["1", "2", "3", "4", "5"]
    updates = str(4 * 13)  # 202 questions in batches of 16
    schedule = {"batch-size": "16", "total-num-update": updates, "max-update": updates, "warmup-updates": "3"}
    assert recipe.axes == {"lr": ["1e-5"], "batch": {"16": schedule}}
    expected = {"weight-decay": "0.1", "lr-scheduler": "polynomial_decay", "adam-betas": "(0.9, 0.98)"}
    expected |= {"adam-eps": "1e-6", "clip-norm": "0.0", "dropout": "0.1", "attention-dropout": "0.1"}
    assert expected.items() <= recipe.train.items()
    assert all(isinstance(value, str) for value in recipe.train.values())
    assert recipe.metric == {"log": "valid", "value": "accuracy", "goal": "max", "at": "best"}


def test_real_race_has_the_number_of_updates_that_the_watch_is_made_for(race, monkeypatch):
    monkeypatch.setattr(type(race.split("train")), "__len__", lambda split: 87866)
    schedule = benchmark_of("race").recipe(race).axes["batch"]["16"]
    assert (schedule["total-num-update"], schedule["warmup-updates"]) == ("21968", "1318")


def test_scores_become_accuracies_and_a_file_of_predictions(race, tmp_path):
    split = race.split("valid")
    labels = np.array(split.columns["label"])
    given = labels.copy()
    given[3] = (given[3] + 1) % 4
    is_middle = split.columns["level"] == 0
    assert is_middle[3]
    found = benchmark_of("race").score(
        race, "valid", [outputs_that_answer(split, given)], folder=tmp_path, options=RaceOptions()
    )
    assert found == {"accuracy": 95.0, "accuracy_middle": 90.0, "accuracy_high": 100.0}
    lines = [json.loads(line) for line in (tmp_path / "valid.predictions.jsonl").read_text().splitlines()]
    assert [line["answer"] for line in lines] == ["ABCD"[answer] for answer in given]
    records = list(split.records())
    assert [(line["id"], line["question"]) for line in lines] == [(r["id"], r["question"]) for r in records]
    best = np.exp(2) / (np.exp(2) + 3)
    assert max(lines[3]["probabilities"]) == pytest.approx(best, abs=1e-6)


def test_members_are_averaged(race):
    split = race.split("valid")
    labels = np.array(split.columns["label"])
    members = [outputs_that_answer(split, (labels + shift) % 4) for shift in (0, 0, 1)]
    assert benchmark_of("race").score(race, "valid", members, folder=None, options=RaceOptions())["accuracy"] == 100.0
    assert benchmark_of("race").score(race, "valid", members[2:], folder=None, options=RaceOptions())["accuracy"] == 0.0


def test_a_split_without_answers_gets_predictions_and_no_metrics(tmp_path):
    entries = [{"id": str(n), "context": "x", "question": "y", "options": ["a", "b", "c"]} for n in range(3)]
    write_lines(tmp_path / "raw/test.jsonl", entries)
    prepared = prepared_of("multiple_choice", tmp_path / "raw", tmp_path / "set")
    split = prepared.split("test")
    members = [outputs_that_answer(split, np.array([2, 0, 1]))]
    assert (
        benchmark_of("multiple_choice").score(prepared, "test", members, folder=tmp_path, options=RaceOptions()) == {}
    )
    lines = (tmp_path / "test.predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["answer"] for line in lines] == [2, 0, 1]
