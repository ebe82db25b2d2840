"""The settings of the procedure from Python, and folds; the procedure itself is in unit/cli and integration/test_finetune.py."""

import dataclasses
from pathlib import Path

import pytest

from roberta_plugin.experiments import finetune as procedure
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.finetune import (
    FinetuneSettings,
    cross_validate,
    finetune,
    fold_rows,
    fold_settings,
    fold_table,
    is_finished,
)
from roberta_plugin.finetuning.options import CustomOptions, RaceOptions
from roberta_plugin.launch.resources import Resources

REQUIRED = {"model": Path("model.pt"), "output_dir": Path("out")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "rte"}, "There is no fine-tuning task 'rte'; there are CoLA, "),
        ({"slurm": Resources()}, "--slurm needs a time limit"),
        ({"options": RaceOptions()}, "RTE has GlueOptions, got RaceOptions"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_they_are_made(changes, message):
    with pytest.raises(ValueError, match=message):
        FinetuneSettings(**{"task": "RTE", **REQUIRED, **changes})


def test_a_grid_with_failed_runs_is_finished_and_one_with_waiting_runs_is_not():
    assert is_finished({"best_cell": "a", "states": {"done": 3, "failed": 1}})
    assert not is_finished({"best_cell": "a", "states": {"done": 3, "waiting": 1}})
    assert not is_finished({"best_cell": None, "states": {"failed": 4}})


@pytest.mark.parametrize(
    ("task", "folder", "name"),
    [
        ("RTE", "runs/large", "RTE-large"),
        ("RTE", "runs/rte-2/", "rte-2"),
        ("custom", "runs/mine/fold-1-of-5", "custom-mine-fold-1-of-5"),
    ],
)
def test_squeue_shows_the_task_and_the_folder(task, folder, name):
    """And not `runs`, the folder below it that the sweep writes to."""
    assert FinetuneSettings(task=task, model=Path("model.pt"), output_dir=Path(folder)).job_name == name


@pytest.fixture
def settings(tmp_path):
    return FinetuneSettings(
        task="custom", model=tmp_path / "model.pt", output_dir=tmp_path / "out", options=CustomOptions(train="my.csv")
    )


def evaluation(split, **median):
    return Evaluation(task="custom", split=split, members=[], median=median, ensemble={})


def test_each_fold_has_its_part_and_its_folder(settings):
    folds = fold_settings(dataclasses.replace(settings, folds=3))
    assert [fold.options.part() for fold in folds] == [(1, 3), (2, 3), (3, 3)]
    assert [fold.output_dir.name for fold in folds] == ["fold-1-of-3", "fold-2-of-3", "fold-3-of-3"]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"task": "RTE", "options": None}, {}, "--folds goes with custom: RTE has"),
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


def test_mean_and_spread_are_those_of_the_folds():
    folds = [
        [evaluation("valid", accuracy=80.0), evaluation("test", accuracy=70.0)],
        [evaluation("valid", accuracy=90.0)],
    ]
    (row,) = fold_rows(folds)
    assert (row["split"], row["mean"], row["smallest"], row["largest"], row["folds"]) == ("valid", 85.0, 80.0, 90.0, 2)
    assert row["deviation"] == pytest.approx(7.0711, abs=1e-4)
    assert "| valid | accuracy | 85.0 | 7.1 | 80.0 to 90.0 | 2 |" in fold_table([row])


def test_folds_stand_beside_the_mean_of_their_baselines(tmp_path):
    folds = [
        [
            dataclasses.replace(
                evaluation("valid", accuracy=80.0), baseline={"accuracy": 60.0}, tf_idf={"accuracy": 81.0}
            )
        ],
        [
            dataclasses.replace(
                evaluation("valid", accuracy=90.0), baseline={"accuracy": 70.0}, tf_idf={"accuracy": 84.0}
            )
        ],
    ]
    (row,) = fold_rows(folds)
    assert (row["baseline"], row["tf_idf"]) == (65.0, 82.5)
    head, _, line = fold_table([row]).strip().splitlines()
    assert head.endswith("| folds | baseline | TF-IDF |") and line.endswith("| 2 | 65.0 | 82.5 |")


def test_all_folds_are_prepared_before_one_is_trained(settings, monkeypatch):
    """Else a fold without rows would be found after hours of training the others."""
    planned = []

    def plan_finetuning(each, report):
        planned.append(each.options.fold)
        if each.options.fold == "3/3":
            raise ValueError("none is left")

    monkeypatch.setattr(procedure, "plan_finetuning", plan_finetuning)
    monkeypatch.setattr(procedure, "carry_out", None)
    with pytest.raises(ValueError, match="none is left"):
        cross_validate(dataclasses.replace(settings, folds=3))
    assert planned == ["1/3", "2/3", "3/3"]
