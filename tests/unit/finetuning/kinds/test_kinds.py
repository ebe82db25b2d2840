"""What each kind of task makes of a model's raw outputs."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch

import roberta_plugin
from roberta_plugin.finetuning.benchmarks import kind_of_task
from roberta_plugin.finetuning.kinds import KINDS, kind_class, table_kind, task_kinds
from roberta_plugin.finetuning.kinds.outputs import (
    Decisions,
    RawOutputs,
    mean_probabilities,
    probabilities,
    read_outputs,
    write_outputs,
)
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.registry import HEADS
from tests.tiny_benchmarks import write_prepared


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_found_by_its_name_with_a_head_and_outputs_that_exist(name):
    kind, entry = kind_class(name), KINDS[name]
    assert kind.name == name
    assert kind.head in (*HEADS, "masked_lm", "")
    assert set(kind.outputs_by) <= {*kind.outputs, *kind.validated_outputs}
    assert issubclass(kind, TableKind) >= entry.is_own
    assert set(entry.options) <= {item.name for item in fields(PredictSettings)}
    assert entry.task_kind in ("", *task_kinds())


def test_a_kind_is_trained_by_a_task_that_names_its_head_as_the_kind_does():
    roberta_plugin.register()  # another test may not have imported fairseq before
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    trained = [kind_class(name) for name, entry in KINDS.items() if entry.training]
    for kind in trained:
        assert CRITERION_REGISTRY[kind.task].name == kind.task
        if kind.head not in ("", "masked_lm"):
            assert TASK_DATACLASS_REGISTRY[kind.task]().classification_head_name == kind.default_head_name


def test_kinds_that_are_not_there_are_named():
    with pytest.raises(ValueError, match=r"has the kind 'made', which is not a kind for own data; there are "):
        table_kind({"kind": "made"})
    with pytest.raises(ValueError, match=r"window_pooling of prepared\.json is 'x', which is none of mean, max"):
        _ = kind_class("made")({"window_pooling": "x"}).window_pooling
    with pytest.raises(ValueError, match=r"no kind of task 'sorting'; there are .*made"):
        kind_class("sorting")


def test_a_task_has_the_kind_of_its_benchmark():
    assert (kind_of_task("made"), kind_of_task("made-other")) == ("made", "made_other")
    assert kind_of_task("unknown") is None


def test_outputs_for_other_sequences_and_damaged_files_do_not_count(tmp_path):
    def split(name, **options):
        return write_prepared(tmp_path / name, num_options=1, **options).split("valid")

    folder, written = tmp_path / "outputs", split("set")
    assert read_outputs(folder, written) is None
    write_outputs(folder, RawOutputs(logits=np.random.default_rng(1).random((40, 2), dtype=np.float32)), written)
    assert read_outputs(folder, split("same")) is not None
    assert read_outputs(folder, split("other", seed=5)) is None
    path = folder / "valid.npz"
    path.write_bytes(path.read_bytes()[:200])
    assert read_outputs(folder, written) is None


def test_probabilities_are_those_of_a_softmax_over_each_questions_options():
    scores = np.random.default_rng(0).normal(scale=4, size=14).astype(np.float32)
    offsets = np.array([0, 4, 6, 11, 14])
    found = probabilities(scores, offsets)
    for start, stop in pairwise(offsets):
        expected = torch.from_numpy(scores[start:stop]).double().softmax(0).numpy()
        np.testing.assert_allclose(found[start:stop], expected, rtol=1e-12)
    large = probabilities(np.array([800, -800, 0, 0], dtype=np.float32), np.array([0, 2, 4]))
    assert large.tolist() == [1, 0, 0.5, 0.5]


def test_an_ensemble_averages_probabilities_and_not_scores():
    offsets = np.array([0, 3])
    for first, other, best in ((9, 1, 0), (2, 1.5, 1)):
        members = np.array([[first, 0, 0], [0, other, 0], [0, other, 0]], dtype=np.float32)
        chances = mean_probabilities([*members], offsets)
        np.testing.assert_allclose(chances, np.mean([probabilities(each, offsets) for each in members], axis=0))
        assert chances.argmax() == best


def test_a_number_is_given_or_found_by_the_answers_of_the_development_set():
    valid = Decisions("valid")
    assert valid.find("threshold", lambda: 0.3, is_labelled=True) == 0.3
    test = Decisions("test", valid.used)
    assert test.find("threshold", lambda: 0.9, is_labelled=True) == 0.3
    assert (valid.used, test.used) == ({"threshold": 0.3}, {"threshold": 0.3})
    for split in ("test", "held_out", "train"):
        with pytest.raises(ValueError, match=rf"not on the split {split}: evaluate `valid` too, or give --made-limit"):
            Decisions(split).find("made_limit", lambda: 0.9, is_labelled=True)
    with pytest.raises(
        ValueError, match=r"found with right answers, but the development set has none: give --threshold"
    ):
        Decisions("valid").find("threshold", lambda: 0.9, is_labelled=False)


@pytest.mark.parametrize("name", KINDS)
def test_every_number_that_predict_takes_is_declared_by_its_kind(name):
    """`decides_by` is what exports carry, and what models bring along."""
    entry = KINDS[name]
    assert set(kind_class(name).decides_by) == set(entry.options) & set(entry.numbers)
