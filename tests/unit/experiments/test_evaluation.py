"""Evaluation of all splits: the threshold of the development set, and what was found before checkpoints were dropped."""

import json
from dataclasses import replace

import pytest

from roberta_plugin.experiments import evaluation
from roberta_plugin.experiments.evaluation import EvaluateSettings, Evaluation, evaluate
from roberta_plugin.finetuning.options import SquadOptions
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_squad import write_prepared


@pytest.fixture
def prepared(tmp_path):
    return write_prepared(tmp_path / "set")


@pytest.fixture
def asked(monkeypatch):
    """What `evaluate_split` is asked for; nothing is computed."""
    calls = []

    def evaluate_split(prepared, settings, *, split, options):
        calls.append((split, options))
        members = [{"checkpoint": str(path), "metrics": {}} for path in settings.checkpoints]
        found = Evaluation(
            task="squad2",
            split=split,
            options=evaluation.as_text(options),
            members=members,
            median={},
            ensemble={"null_threshold": 0.25},
        )
        settings.output_dir.mkdir(exist_ok=True)
        found.write(settings.output_dir)
        return found

    monkeypatch.setattr(evaluation, "evaluate_split", evaluate_split)
    return calls


def settings(prepared, folder, checkpoints=(), **changes):
    return EvaluateSettings(data=prepared.folder, checkpoints=list(checkpoints), output_dir=folder, **changes)


def test_other_splits_are_cut_at_the_threshold_of_the_development_set(prepared, asked, tmp_path, monkeypatch):
    content = {**prepared.content, "splits": {name: {} for name in ("train", "test", "valid")}}
    three_splits = Prepared(prepared.folder, content)
    monkeypatch.setattr(Prepared, "open", lambda folder: three_splits)
    found = evaluate(settings(prepared, tmp_path / "results", options=SquadOptions(n_best=5)))
    assert [each.split for each in found] == ["valid", "test"]
    assert [options for _, options in asked] == [SquadOptions(n_best=5), SquadOptions(n_best=5, null_threshold=0.25)]
    assert found[1].options == {"n-best": "5", "null-threshold": "0.25"}
    given = SquadOptions(null_threshold=0.5)
    evaluate(settings(prepared, tmp_path / "results", options=given))
    assert asked[-1] == ("test", given)


def test_where_checkpoints_are_gone_the_earlier_evaluation_counts_if_it_is_the_same(prepared, asked, tmp_path):
    checkpoint = tmp_path / "checkpoint_best.pt"
    checkpoint.touch()
    folder = tmp_path / "results"
    wanted = settings(prepared, folder, [checkpoint], reuse=True)
    first = evaluate(wanted)
    checkpoint.unlink()
    assert evaluate(wanted) == first
    assert len(asked) == 1
    with pytest.raises(FileNotFoundError, match=r"checkpoint_best\.pt was not kept .*--keep weights"):
        evaluate(replace(wanted, options=SquadOptions(n_best=5)))
    with pytest.raises(FileNotFoundError, match="was not kept"):
        evaluate(replace(wanted, output_dir=tmp_path / "elsewhere"))


def test_evaluations_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "evaluation_valid.json"
    content = {"task": "RTE", "split": "valid", "members": [], "median": {}, "together": {"accuracy": 60.0}}
    path.write_text(json.dumps(content))
    assert Evaluation.read(path).ensemble == {"accuracy": 60.0}


def test_prediction_files_are_named():
    nothing = {"task": "MNLI", "members": [], "median": {}, "ensemble": {}}
    found = [
        Evaluation(split="test", predictions=["r/test.jsonl"], **nothing),
        Evaluation(split="ax", predictions=["r/AX.tsv", "r/b"], **nothing),
    ]
    lines = evaluation.where_predictions_are(found).splitlines()
    assert lines == ["predictions, test: r/test.jsonl", "predictions, ax: r/AX.tsv, r/b"]
