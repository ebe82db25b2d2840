"""The settings of the procedure from Python; the procedure itself is in unit/cli and integration/test_finetune.py."""

from pathlib import Path

import pytest

from roberta_plugin.experiments.finetune import FinetuneSettings, is_finished
from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.training.resources import Resources

REQUIRED = {"model": Path("model.pt"), "output_dir": Path("out")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "rte"}, "There is no fine-tuning task 'rte'; there are CoLA, "),
        ({"epochs": 0}, "--epochs must be 1 or more, got 0"),
        ({"parallel": 0}, "--parallel must be 1 or more, got 0"),
        ({"retries": -1}, "--retries must be 0 or more, got -1"),
        ({"gpus_per_run": -1}, "--gpus-per-run must be 0 or more, got -1"),
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
