"""Folds become settings of their own, and their metrics a table."""

import dataclasses

import pytest

from roberta_plugin.experiments import cross_validation
from roberta_plugin.experiments.cross_validation import as_markdown, cross_validate, rows_of, settings_of_folds
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.finetuning.options import CustomOptions


@pytest.fixture
def settings(tmp_path):
    return FinetuneSettings(
        task="custom", model=tmp_path / "model.pt", output_dir=tmp_path / "out", options=CustomOptions(train="my.csv")
    )


def evaluation(split, **median):
    return Evaluation(task="custom", split=split, members=[], median=median, ensemble={})


def test_each_fold_has_its_part_and_its_folder(settings):
    folds = settings_of_folds(settings, 3)
    assert [fold.options.part() for fold in folds] == [(1, 3), (2, 3), (3, 3)]
    assert [fold.output_dir.name for fold in folds] == ["fold-1-of-3", "fold-2-of-3", "fold-3-of-3"]


@pytest.mark.parametrize(
    ("changes", "options", "number", "message"),
    [
        ({"task": "RTE", "options": None}, {}, 5, "--folds goes with custom: RTE has"),
        ({}, {}, 1, "--folds must be 2 or more, got 1"),
        ({}, {"valid": "dev.csv"}, 5, "leave --valid, --valid-share and --fold out"),
        ({}, {"fold": "1/3"}, 5, "leave --valid, --valid-share and --fold out"),
    ],
)
def test_what_does_not_go_with_folds_is_refused(settings, changes, options, number, message):
    given = {"options": CustomOptions(train="my.csv", **options), **changes}
    with pytest.raises(ValueError, match=message):
        settings_of_folds(dataclasses.replace(settings, **given), number)


def test_mean_and_spread_are_those_of_the_folds():
    folds = [
        [evaluation("valid", accuracy=80.0), evaluation("test", accuracy=70.0)],
        [evaluation("valid", accuracy=90.0)],
    ]
    (row,) = rows_of(folds)
    assert (row["split"], row["mean"], row["smallest"], row["largest"], row["folds"]) == ("valid", 85.0, 80.0, 90.0, 2)
    assert row["deviation"] == pytest.approx(7.0711, abs=1e-4)
    assert "| valid | accuracy | 85.0 | 7.1 | 80.0 to 90.0 | 2 |" in as_markdown([row])


def test_all_folds_are_prepared_before_one_is_trained(settings, monkeypatch):
    """Else a fold without rows would be found after hours of training the others."""
    calls = []

    def finetune(each, report=None):
        calls.append((each.options.fold, each.grid_only))
        if each.options.fold == "3/3":
            raise ValueError("none is left")

    monkeypatch.setattr(cross_validation, "finetune", finetune)
    with pytest.raises(ValueError, match="none is left"):
        cross_validate(settings, num_folds=3)
    assert calls == [("1/3", True), ("2/3", True), ("3/3", True)]
