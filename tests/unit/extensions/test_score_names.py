"""Results and logs of earlier versions are read by the names of now, of each kind."""

import json

import pytest

from roberta_plugin.conversion.model_files import own_results
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.kinds.score_names import is_score

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


def test_a_label_may_be_called_like_a_threshold():
    assert is_score("f1_threshold") and is_score("f1_temperature")
    assert not any(map(is_score, ("threshold", "temperature")))


def test_a_report_on_own_tables_says_which_of_two_labels_a_score_is_of():
    own, official = (kind_class("classification")({"labels": ["no", "yes"]}, task_name=task) for task in ("", "MRPC"))
    assert own.words_on_scores(["accuracy", "tuned_f1"]) == "tuned_f1 is that of the label 'yes'"
    assert own.words_on_scores(["f1", "average_precision"]).startswith("f1 and average_precision are those of ")
    assert not own.words_on_scores(["accuracy", "f1_no"]) and not official.words_on_scores(["f1"])
