"""The table of evaluations beside the paper's numbers, and details."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.evaluation_report import (
    as_markdown,
    find_evaluations,
    metric_rows,
    write_report,
)


def write(folder, task="made", split="valid", values=(50.0, 61.5, 40.0), **more):
    folder.mkdir(parents=True, exist_ok=True)
    members = [{"checkpoint": "x.pt", "metrics": {"accuracy": value} if value else {}} for value in values]
    median = {"accuracy": sorted(values)[len(values) // 2]} if values[0] else {}
    ensemble = {"accuracy": 63.0} if values[0] else {}
    content = {"task": task, "split": split, "members": members, "median": median, "ensemble": ensemble, **more}
    (folder / f"evaluation_{split}.json").write_text(json.dumps(content))


TABLE = """\
| task | split | metric | median | min to max | runs | ensemble | baseline | RoBERTa base, 16 GB of text | RoBERTa large |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| made | valid | accuracy | 50.0 | 40.0 to 61.5 | 3 | 63.0 |  | 65.6 |  |
| made-too | valid_other | accuracy | 50.0 | 40.0 to 61.5 | 3 | 63.0 |  |  | 90.2 |
"""


def test_medians_stand_beside_the_papers_numbers(tmp_path):
    """Of each split; one without labels has no metrics, and the paper has no number of the other one for base."""
    write(tmp_path / "b", split="test", values=(None, None))
    write(tmp_path / "a")
    write(tmp_path / "c", task="made-too", split="valid_other")
    table = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    assert table == TABLE
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["median"] for row in found] == [50.0, 50.0] and all(row["paper"] for row in found)
    assert (tmp_path / "out" / "results.md").read_text() == table
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.json", "results.md"]


def test_evaluations_of_one_split_are_told_apart_and_compared_only_on_the_same_examples(tmp_path):
    same, other = {"made": "m", "inputs": "i", "records": "r"}, {"made": "m", "inputs": "j", "records": "r"}
    other_tokenizer, other_rows = {**other, "made": "n"}, {"made": "n", "inputs": "k", "records": "s"}
    for name, examples in {"a": same, "b": same, "c": other_tokenizer, "d": {}}.items():
        write(tmp_path / name, examples=examples)
    table = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    assert all(f"| made | valid | {tmp_path / name} | accuracy | 50.0 |" in table for name in "abcd")
    assert "different examples" not in table
    write(tmp_path / "b", examples=other)
    write(tmp_path / "d", examples=other_rows)
    table = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    assert (
        f"- made, valid: {tmp_path / 'b'}, {tmp_path / 'd'} and {tmp_path / 'a'} were evaluated on different" in table
    )
    assert "folder" not in json.loads((tmp_path / "a" / "evaluation_valid.json").read_text())


def test_tasks_come_in_their_order_and_a_folder_counts_once(tmp_path, monkeypatch):
    write(tmp_path / "x", task="made-too")
    write(tmp_path / "y", task="made")
    monkeypatch.chdir(tmp_path)
    assert [found.task for found in find_evaluations([tmp_path, tmp_path / "x", Path("x")])] == ["made", "made-too"]


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


def test_a_table_without_labels_says_so():
    assert as_markdown(list(metric_rows([]))).startswith("There are no metrics")


DETAILS = {
    "num_examples": 1200,
    "intervals": {"accuracy": [81.04, 88.96], "made_error": [10.0, 0.0123456]},
    "baseline": {"accuracy": 40.0, "made_error": 20.0},
    "classes": [
        {"label": "a|b", "precision": 90.0, "recall": 50.0, "f1": 64.3, "support": 1000},
        {"label": "$c", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 200},
    ],
    "confusion": {"labels": ["a|b", "$c"], "counts": [[900, 100], [200, 0]]},
}


def evaluation(**changes):
    metrics = {"accuracy": 85.0, "made_error": 12.3456, "threshold": 0.37}
    found = {"task": "made", "split": "valid", "data": "runs/x/data", "details": DETAILS, **changes}
    return Evaluation(members=[{"metrics": metrics}], median=metrics, ensemble=metrics, **found)


REPORT = """\
# made: x/data

| the table |

## valid: 1,200 examples

| metric | model | 95 % interval | baseline |
| --- | --- | --- | --- |
| accuracy | 85.0 | 81.0 to 89.0 | 40.0 |
| made_error | 12.35 | 10 to 0.01235 | 20 |

Threshold: a probability of 0.37.

| label | precision | recall | F1 | examples |
| --- | --- | --- | --- | --- |
| a\\|b | 90.0 | 50.0 | 64.3 | 1,000 |
| $c | 0.0 | 0.0 | 0.0 | 200 |

| right / predicted | a\\|b | $c |
| --- | --- | --- |
| a\\|b | 900 | 100 |
| $c | 200 | 0 |
"""


def test_a_report_shows_all_that_is_known(tmp_path):
    table = write_report([evaluation(), evaluation(split="test", details={})], tmp_path)
    assert (tmp_path / "report.md").read_text() == REPORT.replace("| the table |", table.rstrip())


def test_without_details_nothing_is_written(tmp_path):
    write_report([evaluation(details={})], tmp_path)
    assert not (tmp_path / "report.md").exists()


def test_a_lower_precision_is_named_wherever_its_numbers_stand(tmp_path):
    for split, precision in (("valid", "int8"), ("test", "fp32")):
        members = [{"checkpoint": "x.pt", "metrics": {"accuracy": 85.0}}]
        found = replace(evaluation(split=split, precision=precision), members=members, median={"accuracy": 85.0})
        found.write(tmp_path)
    printed = write_report(find_evaluations([tmp_path]), tmp_path / "out")
    for text in (printed, *((tmp_path / "out" / name).read_text() for name in ("results.md", "report.md"))):
        assert text.count("- made, valid: the models computed in int8.") == 1
        assert "fp32" not in text
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {(row["split"], row["precision"]) for row in rows} == {("valid", "int8"), ("test", "fp32")}


def test_a_matrix_of_many_labels_is_left_out(tmp_path):
    labels = [f"label {number}" for number in range(60)]
    confusion = {"labels": labels, "counts": [[0] * 60] * 60}
    write_report([evaluation(details={**DETAILS, "confusion": confusion})], tmp_path)
    assert "label 59" not in (tmp_path / "report.md").read_text()
