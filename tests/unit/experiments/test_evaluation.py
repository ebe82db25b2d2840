"""Evaluation of all splits, runs whose weights are gone, and the baseline of a constant answer."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.cli.finetuning import show_predictions
from roberta_plugin.experiments import evaluation, inference
from roberta_plugin.experiments.evaluation import (
    EvaluateSettings,
    Evaluation,
    evaluate,
    peak_rate,
    remedy,
    store_outputs,
)
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.prepared import Prepared
from tests.constant_baselines import drawn, no_better, scored
from tests.made_extension.benchmark import MadeOptions
from tests.tiny_benchmarks import prepared_of, write_made, write_prepared


@pytest.fixture
def prepared(tmp_path):
    return write_prepared(tmp_path / "set", num_options=1)


@pytest.fixture
def asked(monkeypatch):
    """What `evaluate_split` is asked for; nothing is computed."""
    calls = []

    def evaluate_split(judge, split, decisions):
        options = judge.deciding(decisions.ensemble)
        calls.append((split, options))
        judge.settings.output_dir.mkdir(exist_ok=True)
        return Evaluation(
            task="made",
            split=split,
            options=evaluation.as_text(options),
            members=[{"checkpoint": str(path), "metrics": {}} for path in judge.settings.checkpoints],
            median={},
            ensemble={"made_limit": 0.25},
        )

    monkeypatch.setattr(evaluation, "evaluate_split", evaluate_split)
    return calls


def settings(prepared, folder, checkpoints=(), **changes):
    return EvaluateSettings(data=prepared.folder, checkpoints=list(checkpoints), output_dir=folder, **changes)


def test_other_splits_are_decided_by_the_number_of_the_development_set(prepared, asked, tmp_path, monkeypatch):
    content = {**prepared.content, "splits": {name: {} for name in ("train", "test", "valid")}}
    three_splits = Prepared(prepared.folder, content)
    monkeypatch.setattr(Prepared, "open", lambda folder: three_splits)
    found = evaluate(settings(prepared, tmp_path / "results", options=MadeOptions(made_draws=5)))
    assert [each.split for each in found] == ["valid", "test"]
    assert [options for _, options in asked] == [MadeOptions(made_draws=5), MadeOptions(made_draws=5, made_limit=0.25)]
    assert found[1].options == {"made-draws": "5", "made-limit": "0.25"}
    given = MadeOptions(made_limit=0.5)
    evaluate(settings(prepared, tmp_path / "results", options=given))
    assert asked[-1] == ("test", given)


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """Folders of two two_runs, and the names of the two_runs whose models were run; nothing is computed."""
    computed = []

    def run_model(model, task, split, **options):
        computed.append(model)
        rng = np.random.default_rng(int(model[-1]))
        return RawOutputs(logits=rng.random((len(split), 2), dtype=np.float32))

    monkeypatch.setattr(inference, "load_model", lambda checkpoint, prepared, split: (checkpoint.parent.name, None))
    monkeypatch.setattr(inference, "run_model", run_model)
    folders = [tmp_path / "seed-1", tmp_path / "seed-2"]
    for folder in folders:
        folder.mkdir()
        torch.save({"model": {"w": torch.ones(1)}}, folder / "best.pt")
    return folders, computed


@pytest.mark.parametrize(("option", "twice"), [("checkpoints", "a.pt"), ("splits", "valid")])
def test_what_is_named_twice_is_refused(tmp_path, option, twice):
    """One model was an ensemble of two."""
    given = {"data": tmp_path, "checkpoints": [Path("a.pt")], "output_dir": tmp_path, option: [Path(twice)] * 2}
    with pytest.raises(ValueError, match=f"--{option.rstrip('s')} names {twice} twice"):
        EvaluateSettings(**given)


def test_a_device_that_is_not_there_is_named(prepared, two_runs, tmp_path):
    (tmp_path / "model.pt").write_text("")
    with pytest.raises(ValueError, match="--device nowhere cannot be used here"):
        evaluate(settings(prepared, tmp_path / "results", [tmp_path / "model.pt"], device="nowhere"))


def test_any_set_of_runs_is_evaluated_from_stored_outputs_when_the_weights_are_gone(prepared, two_runs, tmp_path):
    (one, two), computed = two_runs

    def wanted(*folders, **changes):
        stored = [folder / "outputs" for folder in folders]
        return settings(prepared, tmp_path / "r", [folder / "best.pt" for folder in folders], stored=stored, **changes)

    (both,) = evaluate(wanted(one, two))
    assert computed == ["seed-1", "seed-2"]
    (one / "best.pt").unlink()
    (alone,) = evaluate(wanted(one))
    assert [dict(member) for member in alone.members] == [both.members[0]]
    assert evaluate(wanted(one, two)) == [both]
    (rescored,) = evaluate(wanted(one, options=MadeOptions(made_draws=5)))
    assert rescored.options == {"made-draws": "5"}
    store_outputs(wanted(one, two))
    assert computed == ["seed-1", "seed-2"], "run again"
    shutil.rmtree(one / "outputs")
    with pytest.raises(FileNotFoundError, match=r"best\.pt does not exist, .*delete .*seed-1/result\.json and run"):
        evaluate(wanted(one, two))


def test_prediction_files_are_named(capsys):
    nothing = {"task": "made", "members": [], "median": {}, "ensemble": {}}
    found = [
        Evaluation(split="test", predictions=["r/test.jsonl"], **nothing),
        Evaluation(split="ax", predictions=["r/AX.tsv", "r/b"], **nothing),
    ]
    show_predictions(found)
    assert capsys.readouterr().out.splitlines() == ["predictions, test: r/test.jsonl", "predictions, ax: r/AX.tsv, r/b"]


def test_a_model_of_a_high_rate_is_not_advised_a_higher_one(tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    torch.save({"model": {}, "cfg": {"optimization": {"lr": [5.0]}}}, path)
    assert peak_rate(path) == 5.0
    assert "learning rate of 5 is higher than models are fine-tuned at" in remedy(5.0)
    torch.save({"model": {}, "cfg": None}, path)
    assert peak_rate(path) is None
    for rate in (None, 2e-5):
        assert "try a higher learning rate" in remedy(rate)


@pytest.mark.parametrize("is_stuck", [True, False])
def test_labels(tmp_path, is_stuck):
    prepared = prepared_of("made", write_made(tmp_path / "raw", valid=60), tmp_path / "set")
    labels = np.asarray(prepared.split("valid").columns["label"])
    logits = drawn(len(labels), 2) + ([50, 0] if is_stuck else 9 * np.eye(2, dtype=np.float32)[labels])
    metrics, baseline, found = scored(prepared, RawOutputs(logits=logits))
    assert baseline["accuracy"] == pytest.approx(100 * labels.mean()), "yes is the most frequent one of training"
    assert [line.startswith("valid: the model gives the label no to every input.") for line in found] == (
        [True] if is_stuck else []
    )
    decided = {**baseline, "accuracy": 100.0, "threshold": 0.9}  # by a threshold, not by the most probable label
    assert no_better("valid", ["the label no"], decided, baseline) == []
    assert metrics["accuracy"] == pytest.approx(100 * (1 - labels.mean())) if is_stuck else metrics["accuracy"] > 90


def test_a_model_that_varies_and_is_no_better_is_named_with_both_numbers(tmp_path):
    prepared = prepared_of("made", write_made(tmp_path / "raw", valid=60), tmp_path / "set")
    wrong = 1 - np.asarray(prepared.split("valid").columns["label"])
    metrics, baseline, (found,) = scored(prepared, RawOutputs(logits=np.eye(2, dtype=np.float32)[wrong]))
    assert metrics["accuracy"] == 0.0
    assert f"(accuracy 0.0 and {baseline['accuracy']:.1f})" in found
    metrics, baseline = {"accuracy": 91.0, "macro_f1": 71.0}, {"accuracy": 99.0, "macro_f1": 49.7}
    assert no_better("valid", [None], metrics, baseline)
    assert not no_better("valid", [None], metrics, baseline, selection="macro_f1"), "--select macro_f1"


def test_of_several_models_those_that_are_stuck_are_counted():
    answers = [None, "the label 1", "the label 1", "the label 0"]
    (found,) = no_better("test", answers, {}, {})
    assert found.startswith("test: 3 of 4 models give the label 1 or the label 0 to every input.")
