"""The table of evaluations beside the paper's numbers."""

import json
from pathlib import Path

import pytest

from roberta_plugin.experiments.evaluation_report import as_markdown, find_evaluations, rows_of, write_report


def write(folder, task="race", split="valid", values=(50.0, 61.5, 40.0)):
    folder.mkdir(parents=True, exist_ok=True)
    members = [{"checkpoint": "x.pt", "metrics": {"accuracy": value} if value else {}} for value in values]
    median = {"accuracy": sorted(values)[len(values) // 2]} if values[0] else {}
    ensemble = {"accuracy": 63.0} if values[0] else {}
    content = {"task": task, "split": split, "members": members, "median": median, "ensemble": ensemble}
    (folder / f"evaluation_{split}.json").write_text(json.dumps(content))


def test_medians_stand_beside_the_papers_numbers(tmp_path):
    write(tmp_path / "b", split="test", values=(None, None))
    write(tmp_path / "a")
    table = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    head, _, *rows = table.splitlines()
    cells = dict(zip(head.split(" | "), rows[0].split(" | "), strict=True))
    assert len(rows) == 1, "a split without labels has no metrics"
    assert [cells[name] for name in ("median", "min to max", "runs", "ensemble")] == [
        "50.0",
        "40.0 to 61.5",
        "3",
        "63.0",
    ]
    assert "65.6" in rows[0], "the paper's number on the development set"
    assert "83.2" not in table, "the paper's number on the test set"
    (found,) = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["median"] == 50.0
    assert found["paper"]
    assert (tmp_path / "out" / "results.md").read_text() == table
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.json", "results.md"]


def test_tasks_come_in_their_order_and_a_folder_counts_once(tmp_path, monkeypatch):
    write(tmp_path / "x", task="race")
    write(tmp_path / "y", task="CoLA")
    monkeypatch.chdir(tmp_path)
    assert [found.task for found in find_evaluations([tmp_path, tmp_path / "x", Path("x")])] == ["CoLA", "race"]


def test_what_is_no_evaluation_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="run `roberta finetune` or `roberta evaluate` first"):
        find_evaluations([tmp_path])
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere: check the path"):
        find_evaluations([tmp_path, tmp_path / "nowhere"])
    (tmp_path / "evaluation_valid.json").write_text("{}")
    with pytest.raises(ValueError, match=r"evaluation_valid\.json is not an evaluation"):
        find_evaluations([tmp_path])


def test_the_paper_s_test_numbers_stand_beside_the_test_split(tmp_path):
    write(tmp_path, split="test")
    assert "83.2" in write_report(find_evaluations([tmp_path]), tmp_path / "out")


def test_mismatched_has_the_papers_number_of_its_own(tmp_path):
    write(tmp_path, task="MNLI", split="valid_mismatched")
    table = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    assert "| MNLI | valid_mismatched | accuracy |" in table
    assert "90.2" in table
    assert "87.6" not in table, "the paper has no mismatched number for base"


def test_a_table_without_labels_says_so():
    assert as_markdown(list(rows_of([]))).startswith("There are no metrics")
