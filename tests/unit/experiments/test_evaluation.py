"""Evaluation of all splits: the threshold of the development set, and runs whose weights are gone."""

import shutil

import numpy as np
import pytest

from roberta_plugin.experiments import evaluation, inference
from roberta_plugin.experiments.evaluation import EvaluateSettings, Evaluation, evaluate, store_outputs
from roberta_plugin.finetuning.options import SquadOptions
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.kinds.outputs import RawOutputs
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


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Folders of two runs, and the names of the runs whose models were run; nothing is computed."""
    computed = []

    def run_model(model, task, split, **options):
        computed.append(model)
        rng = np.random.default_rng(int(model[-1]))
        lengths = split.sequences.sizes
        starts, ends = ([rng.random(length, dtype=np.float32) for length in lengths] for _ in range(2))
        answerable = rng.random(len(lengths), dtype=np.float32)
        return RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=answerable)

    monkeypatch.setattr(inference, "load_model", lambda checkpoint, prepared: (checkpoint.parent.name, None))
    monkeypatch.setattr(inference, "run_model", run_model)
    folders = [tmp_path / "seed-1", tmp_path / "seed-2"]
    for folder in folders:
        folder.mkdir()
        (folder / "best.pt").touch()
    return folders, computed


def test_any_set_of_runs_is_evaluated_from_stored_outputs_when_the_weights_are_gone(prepared, runs, tmp_path):
    (one, two), computed = runs

    def wanted(*folders, **changes):
        stored = [folder / "outputs" for folder in folders]
        return settings(prepared, tmp_path / "r", [folder / "best.pt" for folder in folders], stored=stored, **changes)

    (both,) = evaluate(wanted(one, two))
    assert computed == ["seed-1", "seed-2"]
    (one / "best.pt").unlink()
    (alone,) = evaluate(wanted(one))
    assert [dict(member) for member in alone.members] == [both.members[0]]
    assert evaluate(wanted(one, two)) == [both]
    (rescored,) = evaluate(wanted(one, options=SquadOptions(n_best=5)))
    assert rescored.options == {"n-best": "5"}
    store_outputs(wanted(one, two))
    assert computed == ["seed-1", "seed-2"], "run again"
    shutil.rmtree(one / "outputs")
    with pytest.raises(FileNotFoundError, match=r"best\.pt does not exist, .*delete .*seed-1/result\.json and run"):
        evaluate(wanted(one, two))


def test_prediction_files_are_named():
    nothing = {"task": "MNLI", "members": [], "median": {}, "ensemble": {}}
    found = [
        Evaluation(split="test", predictions=["r/test.jsonl"], **nothing),
        Evaluation(split="ax", predictions=["r/AX.tsv", "r/b"], **nothing),
    ]
    lines = evaluation.where_predictions_are(found).splitlines()
    assert lines == ["predictions, test: r/test.jsonl", "predictions, ax: r/AX.tsv, r/b"]
