"""One score has one name; results and logs of earlier versions are read by the names of now."""

import json

import pytest

from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of
from roberta_plugin.finetuning.kinds.score_names import (
    current_table,
    find_score,
    in_record,
    is_of_label,
    is_score,
    tuned,
    untuned,
)
from roberta_plugin.launch.run_folder import Metric, metric_in_log


def test_a_table_of_an_earlier_version_that_a_card_shows_has_the_names_of_now():
    head = "| task | split | metric | median | min to max | runs |\n| --- | --- | --- | --- | --- | --- |\n"
    row, said = (
        "| custom | valid | {} | 66.7 | 60.1 to 70.0 | 2 |\n",
        "\n- custom, valid: TF-IDF is as good (f1_a 75.0).\n",
    )
    former = head + row.format("accuracy") + row.format("f1 (a)") + row.format("f1_a") + said
    assert current_table(former) == head + row.format("accuracy") + row.format("f1") + said
    assert current_table(current_table(former)) == current_table(former)


def test_a_damaged_evaluation_is_named(tmp_path):
    for wrong in ([], {"members": 1}, {"members": [{}]}, {"members": [{"metrics": 5}]}):
        (tmp_path / "evaluation_valid.json").write_text(json.dumps({"task": "RTE", "split": "valid"} | dict(wrong)))
        with pytest.raises(ValueError, match="is not an evaluation of"):
            Evaluation.read(tmp_path / "evaluation_valid.json")


def test_a_label_may_be_called_like_a_threshold():
    assert is_score("f1_made_limit") and is_score("tuned_f1_thresh")
    assert not any(map(is_score, ("made_limit", "best_f1_thresh")))
    assert is_of_label("tuned_recall_LOC") and not is_of_label("macro_f1")


def test_a_score_is_found_whether_a_threshold_decides_or_not():
    assert find_score("accuracy", ["f1", "tuned_accuracy"]) == "tuned_accuracy"
    assert find_score("tuned_f1", ["f1", "tuned_f1"]) == "tuned_f1" and find_score("f1", ["accuracy"]) is None
    assert tuned("tuned_f1") == "tuned_f1" and untuned("tuned_f1_x") == "f1_x"


def test_a_log_of_either_version_is_read_by_either_name():
    record = {"exact": 50.0, "f1": 60.0}
    assert in_record("exact_match", record) == in_record("exact", record) == 50.0
    assert in_record("f1", record) == 60.0 and in_record("accuracy", record) is None
    line = json.dumps({"epoch": 1, "valid_exact_match": "70", "valid_num_updates": "5"})
    metric = Metric(log="valid", value="exact", goal="max", at="last")
    assert metric_in_log([f"2026-01-01 00:00:00 | INFO | valid | {line}"], metric) == {"value": 70.0, "num_updates": 5}


def test_every_name_of_the_papers_and_benchmarks_is_one_that_an_evaluation_has():
    for task in all_tasks():
        row = benchmark_of(task)
        if not row.kind:
            continue
        known = {*row.metrics, *(name for names in row.metrics_of.values() for name in names)}
        named = {name for split in row.paper.values() for numbers in split.values() for name in numbers}
        assert named <= known or not known, (task, named - known)
        assert not {"exact", "f1a"} & (known | named) and not any(" (" in name for name in known | named)
