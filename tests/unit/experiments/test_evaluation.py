"""Evaluation of all splits, runs whose weights are gone, and the baseline of a constant answer."""

import shutil

import numpy as np
import pytest
import torch

from roberta_plugin.cli.finetuning import show_predictions
from roberta_plugin.experiments import evaluation, inference
from roberta_plugin.experiments.evaluation import (
    EvaluateSettings,
    Evaluation,
    Judge,
    constant_baseline,
    evaluate,
    no_better_than_constant,
    peak_rate,
    remedy,
    store_outputs,
)
from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import prepared_of
from tests.tiny_glue import write_task
from tests.tiny_squad import write_prepared
from tests.tiny_squad import write_prepared as write_squad
from tests.tiny_tagging import write_prepared as write_tagging


@pytest.fixture
def questions(tmp_path):
    return write_prepared(tmp_path / "set")


@pytest.fixture
def asked(monkeypatch):
    """What `evaluate_split` is asked for; nothing is computed."""
    calls = []

    def evaluate_split(judge, split, decisions):
        options = judge.deciding(decisions.ensemble)
        calls.append((split, options))
        judge.settings.output_dir.mkdir(exist_ok=True)
        return Evaluation(
            task="squad2",
            split=split,
            options=evaluation.as_text(options),
            members=[{"checkpoint": str(path), "metrics": {}} for path in judge.settings.checkpoints],
            median={},
            ensemble={"null_threshold": 0.25},
        )

    monkeypatch.setattr(evaluation, "evaluate_split", evaluate_split)
    return calls


def settings(questions, folder, checkpoints=(), **changes):
    return EvaluateSettings(data=questions.folder, checkpoints=list(checkpoints), output_dir=folder, **changes)


def test_other_splits_are_cut_at_the_threshold_of_the_development_set(questions, asked, tmp_path, monkeypatch):
    content = {**questions.content, "splits": {name: {} for name in ("train", "test", "valid")}}
    three_splits = Prepared(questions.folder, content)
    monkeypatch.setattr(Prepared, "open", lambda folder: three_splits)
    found = evaluate(settings(questions, tmp_path / "results", options=SquadOptions(n_best=5)))
    assert [each.split for each in found] == ["valid", "test"]
    assert [options for _, options in asked] == [SquadOptions(n_best=5), SquadOptions(n_best=5, null_threshold=0.25)]
    assert found[1].options == {"n-best": "5", "null-threshold": "0.25"}
    given = SquadOptions(null_threshold=0.5)
    evaluate(settings(questions, tmp_path / "results", options=given))
    assert asked[-1] == ("test", given)


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """Folders of two two_runs, and the names of the two_runs whose models were run; nothing is computed."""
    computed = []

    def run_model(model, task, split, **options):
        computed.append(model)
        rng = np.random.default_rng(int(model[-1]))
        lengths = split.sequences.sizes
        starts, ends = ([rng.random(length, dtype=np.float32) for length in lengths] for _ in range(2))
        answerable = rng.random(len(lengths), dtype=np.float32)
        return RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=answerable)

    monkeypatch.setattr(inference, "load_model", lambda checkpoint, questions: (checkpoint.parent.name, None))
    monkeypatch.setattr(inference, "run_model", run_model)
    folders = [tmp_path / "seed-1", tmp_path / "seed-2"]
    for folder in folders:
        folder.mkdir()
        torch.save({"model": {"w": torch.ones(1)}}, folder / "best.pt")
    return folders, computed


def test_a_device_that_is_not_there_is_named(questions, two_runs, tmp_path):
    (tmp_path / "model.pt").write_text("")
    with pytest.raises(ValueError, match="--device nowhere cannot be used here"):
        evaluate(settings(questions, tmp_path / "results", [tmp_path / "model.pt"], device="nowhere"))


def test_any_set_of_runs_is_evaluated_from_stored_outputs_when_the_weights_are_gone(questions, two_runs, tmp_path):
    (one, two), computed = two_runs

    def wanted(*folders, **changes):
        stored = [folder / "outputs" for folder in folders]
        return settings(questions, tmp_path / "r", [folder / "best.pt" for folder in folders], stored=stored, **changes)

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


def test_prediction_files_are_named(capsys):
    nothing = {"task": "MNLI", "members": [], "median": {}, "ensemble": {}}
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


RNG = np.random.default_rng(1)


def scored(prepared, outputs):
    """The model's metrics, those of the constant answer, and the sentences."""
    judge = Judge.open(settings(prepared, prepared.folder))
    metrics = judge.score("valid", outputs, judge.options)
    baseline = constant_baseline(judge, "valid", outputs, metrics=metrics, details={}, options=judge.options)
    answer = judge.kind.only_answer(outputs, prepared.split("valid"))
    return metrics, baseline, no_better("valid", [answer], metrics, baseline, selection=judge.selection)


def no_better(*facts, selection="accuracy"):
    return no_better_than_constant(*facts, selection=selection, baseline_name="a constant answer")


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("is_stuck", [True, False])
def test_labels(tmp_path, is_stuck):
    prepared = prepared_of("SST-2", write_task(tmp_path / "raw", "SST-2"), tmp_path / "SST-2")
    labels = np.asarray(prepared.split("valid").columns["label"])
    logits = drawn(len(labels), 2) + ([50, 0] if is_stuck else 9 * np.eye(2, dtype=np.float32)[labels])
    metrics, baseline, found = scored(prepared, RawOutputs(logits=logits))
    assert baseline["accuracy"] == pytest.approx(100 * labels.mean()), "label 1 is the most frequent one of training"
    assert [line.startswith("valid: the model gives the label 0 to every input.") for line in found] == (
        [True] if is_stuck else []
    )
    decided = {**baseline, "accuracy": 100.0, "threshold": 0.9}  # by a threshold, not by the most probable label
    assert no_better("valid", ["the label 0"], decided, baseline) == []
    assert metrics["accuracy"] == pytest.approx(100 * (1 - labels.mean())) if is_stuck else metrics["accuracy"] > 90


def test_a_model_that_varies_and_is_no_better_is_named_with_both_numbers(tmp_path):
    prepared = prepared_of("SST-2", write_task(tmp_path / "raw", "SST-2"), tmp_path / "SST-2")
    wrong = 1 - np.asarray(prepared.split("valid").columns["label"])
    metrics, baseline, (found,) = scored(prepared, RawOutputs(logits=np.eye(2, dtype=np.float32)[wrong]))
    assert metrics["accuracy"] == 0.0
    assert f"(accuracy 0.0 and {baseline['accuracy']:.1f})" in found
    metrics, baseline = {"accuracy": 91.0, "macro_f1": 71.0}, {"accuracy": 99.0, "macro_f1": 49.7}
    assert no_better("valid", [None], metrics, baseline)
    assert not no_better("valid", [None], metrics, baseline, selection="macro_f1"), "--select macro_f1"


def test_numbers(tmp_path):
    prepared = prepared_of("STS-B", write_task(tmp_path / "raw", "STS-B"), tmp_path / "STS-B")
    numbers = np.asarray(prepared.split("valid").columns["label"])
    _, baseline, found = scored(prepared, RawOutputs(logits=2.5 + 1e-4 * drawn(len(numbers), 1)))
    assert baseline == {"pearson_spearman": 0.0, "pearson": 0.0, "spearman": 0.0}
    assert found[0].startswith("valid: the model gives the same number to every input.")
    assert scored(prepared, RawOutputs(logits=numbers[:, None] + 0.1 * drawn(len(numbers), 1)))[2] == []


def test_tags(tmp_path):
    prepared = write_tagging(tmp_path)
    split, labels = prepared.split("valid"), prepared.settings["labels"]
    logits = [drawn(len(ids), len(labels)) for ids in split.sequences]
    _, baseline, found = scored(
        prepared, RawOutputs(token_logits=[each + 50 * np.eye(len(labels))[0] for each in logits])
    )
    assert labels[0] == "O"
    assert baseline["f1"] == 0.0 < baseline["accuracy"]
    assert found[0].startswith("valid: the model gives the tag O to every input.")
    assert "to every input" not in " ".join(scored(prepared, RawOutputs(token_logits=logits))[2])


def test_answers_and_none(tmp_path):
    prepared = write_squad(tmp_path)
    sequences = prepared.split("valid").sequences
    spans = [drawn(len(ids)) for ids in sequences]
    outputs = RawOutputs(start_logits=spans, end_logits=spans, answerable_logits=drawn(len(sequences)) - 99)
    _, baseline, (found,) = scored(prepared, outputs)
    assert (baseline["tuned_HasAns_f1"], baseline["tuned_NoAns_f1"]) == (0.0, 100.0)
    assert "valid: the model is no better than the baseline" in found


def test_of_several_models_those_that_are_stuck_are_counted():
    answers = [None, "the label 1", "the label 1", "the label 0"]
    (found,) = no_better("test", answers, {}, {})
    assert found.startswith("test: 3 of 4 models give the label 1 or the label 0 to every input.")
