"""Folds of a table: each has its part and its folder, and all are prepared first."""

import dataclasses

import pytest

from roberta_plugin.experiments import finetune as procedure
from roberta_plugin.experiments.finetune import (
    FinetuneSettings,
    cross_validate,
    finetune,
    fold_settings,
)
from roberta_plugin.finetuning.options import CustomOptions


@pytest.fixture
def settings(tmp_path):
    return FinetuneSettings(
        task="custom", model=tmp_path / "model.pt", output_dir=tmp_path / "out", options=CustomOptions(train="my.csv")
    )


def test_each_fold_has_its_part_and_its_folder(settings):
    folds = fold_settings(dataclasses.replace(settings, folds=3))
    assert [fold.options.part() for fold in folds] == [(1, 3), (2, 3), (3, 3)]
    assert [fold.output_dir.name for fold in folds] == ["fold-1-of-3", "fold-2-of-3", "fold-3-of-3"]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"task": "made", "options": None}, {}, "--folds goes with custom: made has"),
        ({}, {"valid": "dev.csv"}, "leave --valid and --fold out"),
        ({}, {"fold": "1/3"}, "leave --valid and --fold out"),
    ],
)
def test_what_does_not_go_with_folds_is_refused(settings, changes, options, message):
    given = {"folds": 5, "options": CustomOptions(train="my.csv", **options), **changes}
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(settings, **given)


def test_folds_are_not_forgotten_by_finetune(settings):
    with pytest.raises(ValueError, match="folds are for `cross_validate`"):
        finetune(dataclasses.replace(settings, folds=3))


def test_all_folds_are_prepared_before_one_is_trained(settings, monkeypatch):
    """Else a fold without rows would be found after hours of training the others."""
    planned = []

    def plan_finetuning(each):
        planned.append(each.options.fold)
        if each.options.fold == "3/3":
            raise ValueError("none is left")

    monkeypatch.setattr(procedure, "plan_finetuning", plan_finetuning)
    monkeypatch.setattr(procedure, "carry_out", None)
    with pytest.raises(ValueError, match="none is left"):
        cross_validate(dataclasses.replace(settings, folds=3))
    assert planned == ["1/3", "2/3", "3/3"]
