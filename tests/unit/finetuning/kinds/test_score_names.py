"""One score has one name; results and logs of earlier versions are read by the names of now."""

import json

import pytest

from roberta_plugin.conversion.model_files import own_results
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.kinds.score_names import find_score, in_record, is_of_label, is_score, tuned, untuned
from roberta_plugin.launch.run_folder import Metric, metric_in_log

FORMER = [  # task, scores of an earlier version, their names of now
    ("custom", {"f1 (no)": 1.0, "accuracy": 2.0, "roc_auc": 3.0}, ["f1", "accuracy", "roc_auc"]),
    ("custom", {"f1 (a (b))": 1.0, "f1_a (b)": 1.0, "f1_a": 2.0}, ["f1", "f1_a"]),
    ("custom", {"tuned_f1 (no)": 1.0, "average_precision (no)": 2.0}, ["tuned_f1", "average_precision"]),
    ("custom", {"tuned_micro_f1": 1.0, "f1_a": 2.0, "threshold": 0.5}, ["tuned_micro_f1", "tuned_f1_a", "threshold"]),
    ("custom", {"f1": 1.0, "f1_PER": 2.0, "precision": 3.0}, ["f1", "f1_PER", "precision"]),
    ("custom", {"tuned_exact": 1.0, "tuned_f1": 2.0}, ["tuned_exact_match", "tuned_f1"]),
    ("squad1", {"exact": 1.0, "f1": 2.0}, ["exact_match", "f1"]),
    (
        "squad2",
        {"exact": 1.0, "f1": 2.0, "HasAns_exact": 3.0, "NoAns_f1": 4.0, "best_exact_thresh": 0.1, "best_f1": 5.0},
        [
            *("tuned_exact_match", "tuned_f1", "tuned_HasAns_exact_match", "tuned_NoAns_f1"),
            *("best_exact_match_thresh", "best_f1"),
        ],
    ),
    ("MultiRC", {"f1a": 1.0, "exact_match": 2.0}, ["f1", "exact_match"]),
]


def write_evaluation(folder, task, scores, **more):
    content = {"task": task, "split": "valid", "median": scores, "ensemble": scores, "baseline": scores, **more}
    content["members"] = [{"checkpoint": str(folder / "best.pt"), "metrics": scores}]
    (folder / "results").mkdir(exist_ok=True)
    path = folder / "results" / "evaluation_valid.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(("task", "scores", "names"), FORMER)
def test_an_evaluation_of_an_earlier_version_has_the_names_of_now(tmp_path, task, scores, names):
    details = {"num_examples": 3, "intervals": {name: [0, 9] for name in scores}, "not_measured": list(scores)[:1]}
    path = write_evaluation(tmp_path, task, scores, selection=next(iter(scores)), details=details)
    found = Evaluation.read(path)
    for each in (found.median, found.ensemble, found.baseline, found.members[0]["metrics"], found.details["intervals"]):
        assert list(each) == names
    assert found.selection == names[0] == found.details["not_measured"][0]
    assert list(own_results(tmp_path / "best.pt", "valid").metrics) == names
    write_report([found], tmp_path)
    shown = [row["metric"] for row in json.loads((tmp_path / "results.json").read_text())]
    assert shown == list(filter(is_score, names))
    found.write(tmp_path)
    assert Evaluation.read(tmp_path / "evaluation_valid.json") == found, "the names of now stay"


def test_a_damaged_evaluation_is_named(tmp_path):
    for wrong in ([], {"members": 1}, {"members": [{}]}, {"members": [{"metrics": 5}]}):
        (tmp_path / "evaluation_valid.json").write_text(json.dumps({"task": "RTE", "split": "valid"} | dict(wrong)))
        with pytest.raises(ValueError, match="is not an evaluation of"):
            Evaluation.read(tmp_path / "evaluation_valid.json")


def test_a_label_may_be_called_like_a_threshold():
    assert is_score("f1_threshold") and is_score("f1_temperature") and is_score("tuned_f1_thresh")
    assert not any(map(is_score, ("threshold", "temperature", "best_f1_thresh")))
    assert is_of_label("tuned_recall_LOC") and not is_of_label("macro_f1")


def test_a_score_is_found_whether_a_threshold_decides_or_not():
    assert find_score("accuracy", ["f1", "tuned_accuracy"]) == "tuned_accuracy"
    assert find_score("tuned_f1", ["f1", "tuned_f1"]) == "tuned_f1" and find_score("f1", ["accuracy"]) is None
    assert tuned("tuned_f1") == "tuned_f1" and untuned("tuned_f1_x") == "f1_x"


@pytest.mark.parametrize(
    ("kind", "labels", "former", "name"),
    [
        ("classification", ["no", "yes"], "f1_yes", "f1"),
        ("classification", ["no", "yes"], "f1_no", "f1_no"),
        ("classification", ["no", "yes"], "tuned_accuracy", "tuned_accuracy"),
        ("classification", ["a", "b", "c"], "f1_b", "f1_b"),
        ("multi_label", ["a", "b"], "f1_b", "tuned_f1_b"),
        ("multi_label", ["a", "b"], "tuned_threshold", "threshold"),
        ("multi_label", ["a", "b"], "micro_f1", "tuned_micro_f1"),
        ("question_answering", None, "exact", "exact_match"),
        ("question_answering", None, "tuned_exact", "best_exact_match"),
        ("question_answering", None, "f1", "f1"),
    ],
)
def test_a_former_name_chooses_the_same_score(kind, labels, former, name):
    assert kind_class(kind)({"labels": labels}).metric_named(former) == name


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
