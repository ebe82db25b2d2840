"""A constant answer of every kind of task, scored by the task's benchmark, and the sentences about useless models."""

import numpy as np
import pytest

from roberta_plugin.experiments.baseline import baseline_of, findings, same_answer
from roberta_plugin.finetuning.benchmarks import benchmark_of, checked_options
from roberta_plugin.kinds.outputs import RawOutputs
from tests.tiny_glue import write_task
from tests.tiny_squad import write_prepared as write_squad
from tests.tiny_tagging import write_prepared as write_tagging
from tests.unit.finetuning.glue.test_prepare import prepared_of

RNG = np.random.default_rng(1)


def scored(prepared, outputs):
    """The model's metrics, those of the constant answer, and the sentences."""
    options = checked_options(prepared.task, None)
    metrics = benchmark_of(prepared.task).score(
        prepared.task, prepared, "valid", [outputs], folder=None, options=options
    )
    known = {"metrics": metrics, "details": {}, "options": options}
    baseline = baseline_of(prepared, "valid", outputs, **known)
    answer = same_answer(prepared, prepared.split("valid"), outputs)
    return metrics, baseline, findings(prepared, "valid", [answer], metrics, baseline)


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
    assert metrics["accuracy"] == pytest.approx(100 * (1 - labels.mean())) if is_stuck else metrics["accuracy"] > 90


def test_a_model_that_varies_and_is_no_better_is_named_with_both_numbers(tmp_path):
    prepared = prepared_of("SST-2", write_task(tmp_path / "raw", "SST-2"), tmp_path / "SST-2")
    wrong = 1 - np.asarray(prepared.split("valid").columns["label"])
    metrics, baseline, (found,) = scored(prepared, RawOutputs(logits=np.eye(2, dtype=np.float32)[wrong]))
    assert metrics["accuracy"] == 0.0
    assert f"(accuracy 0.0 and {baseline['accuracy']:.1f})" in found
    metrics, baseline = {"accuracy": 91.0, "macro_f1": 71.0}, {"accuracy": 99.0, "macro_f1": 49.7}
    assert findings(prepared, "valid", [None], metrics, baseline)
    assert not findings(prepared, "valid", [None], metrics, baseline, selection="macro_f1"), "--select macro_f1"


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
    assert (baseline["HasAns_f1"], baseline["NoAns_f1"]) == (0.0, 100.0)
    assert "valid: the model is no better than the baseline" in found


def test_of_several_models_those_that_are_stuck_are_counted(tmp_path):
    prepared = prepared_of("SST-2", write_task(tmp_path / "raw", "SST-2"), tmp_path / "SST-2")
    answers = [None, "the label 1", "the label 1", "the label 0"]
    (found,) = findings(prepared, "test", answers, {}, {})
    assert found.startswith("test: 3 of 4 models give the label 1 or the label 0 to every input.")
