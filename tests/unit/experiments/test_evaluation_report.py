"""The table of evaluations beside the paper's numbers; details and learning curves with their plots."""

import json
import math
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from roberta_plugin.experiments import evaluation_report
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.evaluation_report import (
    LEARNING_CURVE,
    as_markdown,
    find_evaluations,
    rows_of,
    write_details,
    write_learning_curve,
    write_report,
)
from roberta_plugin.experiments.sweeps.grid import Metric, Run
from roberta_plugin.experiments.sweeps.run import RunFolder
from roberta_plugin.pictures import drawable
from roberta_plugin.training.log import Curve


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


DETAILS = {
    "num_examples": 1200,
    "intervals": {"accuracy": [81.04, 88.96], "mae": [10.0, 0.0123456]},
    "baseline": {"accuracy": 40.0, "mae": 20.0},
    "classes": [
        {"label": "a|b", "precision": 90.0, "recall": 50.0, "f1": 64.3, "support": 1000},
        {"label": "$c", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 200},
    ],
    "confusion": {"labels": ["a|b", "$c"], "counts": [[900, 100], [200, 0]]},
}


def evaluation(**changes):
    metrics = {"accuracy": 85.0, "mae": 12.3456, "threshold": 0.37}
    found = {"task": "custom", "split": "valid", "data": "runs/x/data", "details": DETAILS, **changes}
    return Evaluation(members=[{}], median=metrics, ensemble=metrics, **found)


def test_a_report_shows_all_that_is_known(tmp_path):
    path = write_details([evaluation(), evaluation(split="test", details={})], tmp_path, table="| the table |\n")
    text = path.read_text()
    for part in (
        "| the table |",
        "## valid: 1,200 examples",
        "| accuracy | 85.0 | 81.0 to 89.0 | 40.0 |",
        "Threshold: a probability of 0.37.",
        "| a\\|b | 90.0 | 50.0 | 64.3 | 1,000 |",
        "| mae | 12.35 | 10 to 0.01235 | 20 |",
        "![right and predicted labels](confusion_valid.png)",
    ):
        assert part in text, part
    assert "## test" not in text
    assert (tmp_path / "confusion_valid.png").read_bytes().startswith(b"\x89PNG")


def test_without_details_nothing_is_written(tmp_path):
    assert write_details([evaluation(details={})], tmp_path, table="") is None
    assert list(tmp_path.iterdir()) == []


def test_a_lower_precision_is_named_wherever_its_numbers_stand(tmp_path):
    for split, precision in (("valid", "int8"), ("test", "fp32")):
        members = [{"checkpoint": "x.pt", "metrics": {"accuracy": 85.0}}]
        found = replace(evaluation(split=split, precision=precision), members=members, median={"accuracy": 85.0})
        found.write(tmp_path)
    printed = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    for text in (printed, *((tmp_path / "out" / name).read_text() for name in ("results.md", "report.md"))):
        assert text.count("- custom, valid: the models computed in int8.") == 1
        assert "fp32" not in text
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {(row["split"], row["precision"]) for row in rows} == {("valid", "int8"), ("test", "fp32")}


def test_a_matrix_of_many_labels_is_not_drawn(tmp_path):
    labels = [f"label {number}" for number in range(60)]
    confusion = {"labels": labels, "counts": [[0] * 60] * 60}
    write_details([evaluation(details={**DETAILS, "confusion": confusion})], tmp_path, table="")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


def test_a_label_that_the_font_lacks_is_drawn_by_its_code_and_without_a_warning(tmp_path, recwarn):
    names = ["\N{SLIGHTLY SMILING FACE} $1", "plain"]
    write_details(
        [evaluation(details={**DETAILS, "confusion": {"labels": names, "counts": [[1, 2], [3, 4]]}})],
        tmp_path,
        table="",
    )
    assert [str(each.message) for each in recwarn] == []
    assert drawable(names[0]) == r"U+1F642 \$1"


LOG = """2026 | INFO | train | {"train_loss": "0.9", "train_num_updates": "10"}
2026 | INFO | valid | {"valid_loss": "0.8", "valid_accuracy": "70", "valid_num_updates": "10"}
"""


def test_a_plot_is_drawn_of_runs_that_have_a_log(tmp_path):
    metric = Metric(log="valid", value="accuracy", goal="max", at="best")
    runs = [RunFolder(tmp_path, Run(cell="a", seed=name, settings={}, arguments=()), metric) for name in "12"]
    write_learning_curve(runs, metric, tmp_path / "results", is_regression=False)
    assert not (tmp_path / "results").exists()
    runs[0].prepare()
    (runs[0].path / "log.txt").write_text(LOG)
    write_learning_curve(runs, metric, tmp_path / "results", is_regression=False)
    assert (tmp_path / "results" / LEARNING_CURVE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("is_regression", "value", "label"), [(False, 1.0, "bits per example"), (True, math.log(2), "squared")]
)
def test_losses_are_in_bits_as_everywhere_else(monkeypatch, is_regression, value, label):
    figures = []

    @contextmanager
    def shown(*_, **__):
        figures.append(Figure())
        yield figures[0]

    monkeypatch.setattr(evaluation_report, "picture", shown)
    one = Curve([10], [math.log(2)])
    evaluation_report.plot_learning_curve({"seed 1": (one, one, one)}, "accuracy", None, is_regression=is_regression)
    losses, metric = figures[0].axes
    assert losses.lines[0].get_ydata()[0] == pytest.approx(value) and label in losses.get_ylabel()
    assert metric.get_ylabel() == "accuracy (percent)"
