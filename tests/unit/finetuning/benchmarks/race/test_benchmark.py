"""What the benchmark tells `roberta finetune` and `roberta evaluate`."""

import json

import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.options import RaceOptions
from tests.tiny_race import write_race
from tests.unit.finetuning.benchmarks.race.test_prepare import prepared_of


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of("race", write_race(folder / "raw", train=101, dev=10), folder / "set")


def outputs_that_answer(split, given):
    scores = np.zeros((len(split.sequences), 1), dtype=np.float32)
    scores[split.offsets[:-1] + given] = 2.0
    return RawOutputs(logits=scores)


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
