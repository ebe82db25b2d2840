"""What is said of a development set that cannot tell a metric."""

from types import SimpleNamespace

import numpy as np
import pytest

from roberta_plugin.finetuning.preparation import remarks, selection_remarks


def prepared_with(tmp_path, kind, labels):
    """A prepared folder whose development set has these labels."""
    split = SimpleNamespace(
        name="valid",
        columns={"label": np.array(labels)},
        facts={"arrays": [], "lengths": []},
        __len__=lambda self: len(labels),
    )
    split = type("Split", (), {**vars(split)})()
    settings = {"kind": kind, "labels": ["a", "b", "c"] if kind == "classification" else [], "max_length": 8}
    return SimpleNamespace(task="custom", settings=settings, split=lambda name: split)


@pytest.mark.parametrize(
    ("kind", "labels", "metric", "says"),
    [
        ("classification", [0, 1, 1], "macro_f1", "by macro_f1, which here is of the other labels only"),
        ("classification", [0, 1, 1], "accuracy", None),
        ("classification", [0, 1, 2], "macro_f1", None),
        ("regression", [2.5, 2.5], "pearson_spearman", "by pearson_spearman, which is not defined here"),
        ("regression", [2.5, 2.5], "mae", None),
        ("regression", [2.5, 3.5], "pearson", None),
    ],
)
def test_a_metric_that_the_development_set_cannot_tell_is_named(tmp_path, kind, labels, metric, says):
    """`--select macro_f1` without an example of a label, a correlation with numbers that are all the same."""
    prepared = prepared_with(tmp_path, kind, labels)
    found = selection_remarks(prepared, metric)
    assert bool(found) == bool(says)
    if says:
        assert says in found[0] and ("accuracy" if kind == "classification" else "mae, rmse") in found[0]


def test_numbers_that_are_all_the_same_are_named_by_every_command(tmp_path):
    assert remarks(prepared_with(tmp_path, "regression", [2.5, 3.5]), ["valid"]) == []
    (sentence,) = remarks(prepared_with(tmp_path, "regression", [2.5, 2.5]), ["valid"])
    assert sentence.startswith("valid: all examples have the same number: correlations are not defined")
