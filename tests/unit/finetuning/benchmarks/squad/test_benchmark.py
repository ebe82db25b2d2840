import json

import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks import BENCHMARKS, benchmark_of
from roberta_plugin.finetuning.kinds.metrics import squad_metrics
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.questions import Questions
from roberta_plugin.finetuning.options import SquadOptions
from tests.tiny_squad import question, write_json, write_prepared, write_raw


@pytest.fixture(scope="module", params=BENCHMARKS["squad"].tasks)
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = write_raw(folder / "raw", task=request.param, sizes={"train": 5, "dev": 40})
    context = "xx good yy"
    version = {"squad1": "1.1", "squad2": "2.0"}[request.param]
    entries = [question(request.param, "untold", None)]
    write_json(raw / f"test-v{version}.json", [{"context": context, "qas": entries}], task=request.param)
    return write_prepared(folder, task=request.param, raw=raw)


def outputs(prepared, split="valid", *, seed=0):
    """Scores that are right more often than not."""
    part, rng = prepared.split(split), np.random.default_rng(seed)
    columns = part.columns
    starts = [rng.normal(size=size).astype(np.float32) * 2 for size in part.sequences.sizes]
    ends = [rng.normal(size=size).astype(np.float32) * 2 for size in part.sequences.sizes]
    for window in range(len(part)):
        starts[window][columns["start"][window]] += 5
        ends[window][columns["end"][window]] += 5
    answerable = (columns["has_answer"] * 2 - 1 + rng.normal(size=len(part))).astype(np.float32)
    return RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=answerable)


def score(prepared, members, *, split="valid", folder=None, **options):
    return benchmark_of(prepared.task).score(prepared, split, members, folder=folder, options=SquadOptions(**options))


def read(folder, name):
    return json.loads((folder / "valid" / name).read_text())


def test_metrics_are_those_of_the_files_that_are_written(prepared, tmp_path):
    found = score(prepared, [outputs(prepared)], folder=tmp_path)
    questions = Questions(prepared.split("valid"))
    predictions = read(tmp_path, "predictions.json")
    assert list(predictions) == questions.ids
    expected = squad_metrics(prepared.task, questions.answers, list(predictions.values()))
    assert expected.items() <= found.items()
    assert 50 < found["exact"] <= found["f1"] < 100
    assert (tmp_path / "valid" / "null_odds.json").exists() == (prepared.task == "squad2")


@pytest.mark.parametrize("prepared", ["squad2"], indirect=True)
def test_the_threshold_is_the_best_one_for_f1(prepared, tmp_path):
    found = score(prepared, [outputs(prepared)], folder=tmp_path)
    null, predictions = read(tmp_path, "null_odds.json"), read(tmp_path, "predictions.json")
    threshold = found["best_f1_thresh"]
    assert found["null_threshold"] == threshold
    assert {id_ for id_, text in predictions.items() if not text} == {id_ for id_ in null if null[id_] > threshold}
    assert found["f1"] == pytest.approx(found["best_f1"])
    assert found["NoAns_f1"] > 0 and found["HasAns_f1"] > 0
    worse = [score(prepared, [outputs(prepared)], null_threshold=other)["f1"] for other in (0.0, 0.3, 0.7, 1.0)]
    assert max(worse) <= found["best_f1"] and min(worse) < found["best_f1"]


def test_candidates_are_listed_with_their_places(prepared, tmp_path):
    score(prepared, [outputs(prepared)], folder=tmp_path, n_best=3)
    listed, predictions = read(tmp_path, "nbest_predictions.json"), read(tmp_path, "predictions.json")
    records = list(prepared.split("valid").records())
    texts = [record["text"] for record in records if "id" not in record]
    passage_of = {record["id"]: texts[record["passage"]] for record in records if "id" in record}
    for id_, entries in listed.items():
        spans = [entry for entry in entries if "start" in entry]
        assert len(spans) == 3 and len(entries) == 3 + (prepared.task == "squad2")
        assert all(passage_of[id_][entry["start"] : entry["end"]] == entry["text"] for entry in spans)
        probabilities = [entry["probability"] for entry in entries]
        assert probabilities == sorted(probabilities, reverse=True) and 0 < probabilities[0] <= 1
        assert predictions[id_] in ("", spans[0]["text"])


def test_a_split_without_answers_has_predictions_and_no_metrics(prepared, tmp_path):
    member = outputs(prepared, "test")
    options = {} if prepared.task == "squad1" else {"null_threshold": 0.4}
    assert score(prepared, [member], split="test", folder=tmp_path, **options) == {}
    assert json.loads((tmp_path / "test" / "predictions.json").read_text()).keys() == {"untold"}
    if prepared.task == "squad2":
        with pytest.raises(
            ValueError, match=r"found on the development set, not on the split test: .* or give --null-threshold"
        ):
            score(prepared, [member], split="test")
        with pytest.raises(ValueError, match="found on the development set, not on the split train"):
            score(prepared, [outputs(prepared, "train")], split="train")
