"""The report of a sweep: medians, the best cell, ensembles, the PNG."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from roberta_plugin.experiments.sweeps.report import best_cell, cell_results, ensemble, write_report
from roberta_plugin.launch.run_folder import Metric, Run, RunFolder

ACCURACY = Metric(log="valid", value="accuracy", goal="max")
PPL = Metric(log="valid", value="ppl", goal="min")


def make(root, values, metric=ACCURACY):
    """A sweep with `values`: cell -> a value a seed, None where the run is not done, "x" where it has failed."""
    runs = [
        Run(cell=cell, seed=str(seed), settings={"lr": cell}, arguments=("data",))
        for cell, numbers in values.items()
        for seed in range(len(numbers))
    ]
    grid = SimpleNamespace(path=Path("table3.yaml"), metric=metric, cells=list(values))
    folders = [RunFolder(root, run, metric) for run in runs]
    for folder in folders:
        folder.prepare()
        value = values[folder.run.cell][int(folder.run.seed)]
        if value == "x":
            (folder.path / "failure.json").write_text(json.dumps({"reason": "it broke", "attempts": 2}))
        elif value is not None:
            (folder.path / "result.json").write_text(json.dumps({"value": value, "metric": {}}))
            (folder.path / "checkpoints").mkdir()
            (folder.path / "checkpoints" / "checkpoint_last.pt").touch()
    return grid, folders


def test_median_min_and_max_by_cell(tmp_path):
    a, b, c = cell_results(*make(tmp_path, {"a": [1, 9, 2], "b": [5, None, "x"], "c": [None, None, None]}))
    assert (a.median, a.smallest, a.largest, a.num_failed, a.is_complete) == (2, 1, 9, 0, True)
    assert (b.median, b.smallest, b.largest, b.num_failed, b.is_complete) == (5, 5, 5, 1, False)
    assert (c.median, c.smallest, c.largest, c.num_failed, c.values) == (None, None, None, 0, {})


@pytest.mark.parametrize(
    ("values", "metric", "best"),
    [
        ({"a": [1, 9, 2], "b": [3, 3, 3]}, ACCURACY, "b"),  # by median: a has the best run
        ({"a": [1, 9, 2], "b": [3, 3, 3]}, PPL, "a"),
        ({"a": [2, 2], "b": [2, 2]}, PPL, "a"),
        ({"a": [2, 2], "b": [9, None]}, ACCURACY, "a"),  # b lacks a seed
        ({"a": [2, None], "b": [9, None]}, ACCURACY, "b"),
        ({"a": ["x"]}, ACCURACY, None),
    ],
)
def test_the_best_cell(tmp_path, values, metric, best):
    grid, folders = make(tmp_path, values, metric)
    found = best_cell(cell_results(grid, folders), metric)
    assert (found.name if found else None) == best


def test_members_of_an_ensemble_are_the_best_runs_that_have_a_checkpoint(tmp_path):
    _, folders = make(tmp_path, {"a": [1, 9, 2], "b": [5, 7, None]})
    (tmp_path / "b" / "seed-1" / "checkpoints" / "checkpoint_last.pt").unlink()
    (tmp_path / "b" / "seed-0" / "checkpoints" / "checkpoint_best.pt").touch()
    members = ensemble(folders, ACCURACY, size=3)
    assert [(member["run"], member["value"]) for member in members] == [
        ("a/seed-1", 9),
        ("b/seed-0", 5),
        ("a/seed-2", 2),
    ]
    assert [Path(member["checkpoint"]).name for member in members] == [
        "checkpoint_last.pt",
        "checkpoint_best.pt",
        "checkpoint_last.pt",
    ]
    assert [member["value"] for member in ensemble(folders, PPL, size=1)] == [1]


def test_where_the_last_value_counts_the_last_checkpoint_is_the_member(tmp_path):
    at_last = Metric(log="valid", value="accuracy", goal="max", at="last")
    _, folders = make(tmp_path, {"a": [1]}, at_last)
    (tmp_path / "a" / "seed-0" / "checkpoints" / "checkpoint_best.pt").touch()
    (member,) = ensemble(folders, at_last, size=3)
    assert Path(member["checkpoint"]).name == "checkpoint_last.pt"


def test_the_report_has_all_of_it(tmp_path):
    grid, folders = make(tmp_path, {"1e-4": [1.25, 9, 2], "2e-4": [5, None, "x"]})
    facts = write_report(grid, folders, root=tmp_path, ensemble_size=2)
    assert facts == json.loads((tmp_path / "report.json").read_text())
    assert facts["states"] == {"done": 4, "failed": 1, "waiting": 1}
    assert facts["best_settings"] == {"lr": "1e-4"}
    text = (tmp_path / "report.md").read_text()
    assert "4 of 6 runs done. Metric: valid accuracy, best, larger is better." in text
    assert "| **1e-4** | 2 | 1.25 | 9 | 3 of 3 | 0 |" in text
    assert "| 2e-4 | 5 | 5 | 5 | 1 of 3 | 1 |" in text
    assert "- 2e-4/seed-2, attempt 2: it broke" in text


def test_a_report_of_nothing(tmp_path):
    grid, folders = make(tmp_path, {"a": [None]})
    facts = write_report(grid, folders, root=tmp_path, ensemble_size=2)
    assert facts["best_cell"] is None
    assert "| a | - | - | - | 0 of 1 | 0 |" in (tmp_path / "report.md").read_text()
