"""Outputs of models become metrics, details and files, for every kind."""

import json
import re
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import sklearn.metrics as sk

from roberta_plugin.experiments.evaluation import EvaluateSettings, Evaluation
from roberta_plugin.experiments.evaluation import evaluate as evaluate_splits
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.extensions.own_tables import benchmark as custom
from roberta_plugin.extensions.tagging.entities import Sentences, TagCounts
from roberta_plugin.extensions.texts.classification import Classification
from roberta_plugin.finetuning.benchmarks import benchmark_of, kind_of
from roberta_plugin.finetuning.kinds import own_kinds, table_kind
from roberta_plugin.finetuning.kinds.outputs import RawOutputs, write_outputs
from roberta_plugin.finetuning.options import CustomOptions
from tests.tiny_benchmarks import random_outputs
from tests.tiny_tables import rows_of, write_csv, write_json_lines


def score(prepared, split, *outputs, folder=None, **options):
    return benchmark_of("custom").score(prepared, split, outputs, folder=folder, options=CustomOptions(**options))


def details_of(prepared, split, *outputs, **options):
    return benchmark_of("custom").judge(prepared, split, outputs, folder=None, options=CustomOptions(**options))[1]


def evaluated(prepared, folder, **changes):
    """Of the outputs that are stored in the folder beside its checkpoint, or of those of the settings that are given."""
    run = {"checkpoints": [folder / "none.pt"], "output_dir": folder / "results", "stored": [folder / "outputs"]}
    return evaluate_splits(EvaluateSettings(**{"data": prepared.folder, **run, **changes}))


def entries_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def logits_for(prepared, split, *, noise, seed=0):
    """Outputs that are right, but for noise."""
    part, rng = prepared.split(split), np.random.default_rng(seed)
    kind = prepared.settings["kind"]
    if kind == "multi_label":
        right = 4.0 * part.columns["labels"] - 2
    elif kind == "regression":
        right = (part.columns["label"][:, None] - prepared.settings["mean"]) / prepared.settings["deviation"]
    elif kind == "multiple_choice":
        right = np.zeros((len(part.sequences), 1))
        right[part.offsets[:-1] + part.columns["label"]] = 3
    else:
        right = 3.0 * np.eye(len(prepared.settings["labels"]))[part.columns["label"]]
    return RawOutputs(logits=(right + noise * rng.normal(size=right.shape)).astype(np.float32))


FIRST = {
    "multi-label": "tuned_micro_f1",
    "regression": "pearson",
    "multiple-choice": "accuracy",
    "classification": "mcc",
}


@pytest.mark.parametrize("kind", FIRST)
def test_metrics_lie_within_their_intervals_and_above_the_baseline(prepare_table, tmp_path, kind):
    prepared, options = prepare_table(kind), {"threshold": 0.5} if kind == "multi-label" else {}
    right = logits_for(prepared, "train", noise=0)
    assert score(prepared, "train", right, **options)[FIRST[kind]] == pytest.approx(100)

    outputs = [logits_for(prepared, "train", noise=2.6, seed=seed) for seed in range(4)]
    found = score(prepared, "train", *outputs, folder=tmp_path, **options)
    single = score(prepared, "train", outputs[0], **options)
    details = details_of(prepared, "train", *outputs, **options)
    assert benchmark_of("custom").recipe(prepared).compared_by in found
    assert found[FIRST[kind]] > single[FIRST[kind]], "an ensemble averages the noise away"
    assert details["intervals"].keys() == found.keys() - {"threshold"}
    for name, (low, high) in details["intervals"].items():
        assert low <= found[name] <= high and (low, high) != (found[name], found[name])
    assert all(value < found[name] for name, value in details["baseline"].items())
    assert json.loads(json.dumps(details)).keys() == details.keys()

    entries = entries_in(tmp_path / "train.predictions.jsonl")
    given, labels = ([entry[name] for entry in entries] for name in ("prediction", "label"))
    assert [entry["id"] for entry in entries] == [record["id"] for record in prepared.split("train").records()]
    if kind == "multi-label":
        exact = [sorted(one) == sorted(other) for one, other in zip(given, labels, strict=True)]
        assert 100 * np.mean(exact) == pytest.approx(found["tuned_exact_match"])
        number = Counter(chain(*labels))
        most = max(number.values())  # rows with the most frequent label, which the baseline gives to all
        f1 = 2 * most / (len(labels) + number.total())
        assert details["baseline"]["tuned_micro_f1"] == pytest.approx(100 * f1)
        shares = [
            [p if name in entry["label"] else 1 - p for name, p in entry["probabilities"].items()] for entry in entries
        ]
        losses = -np.log(shares).mean(axis=1)
        assert [each["loss"] for each in details["hardest"]] == pytest.approx(np.sort(losses)[:-21:-1], rel=1e-3)
    elif kind == "regression":
        given, labels = np.array(given), np.array(labels)
        assert 100 * np.corrcoef(given, labels)[0, 1] == pytest.approx(found["pearson"], abs=1e-3)
        assert given.mean() == pytest.approx(1500, abs=200)  # on the scale of the table
        assert found["mae"] == pytest.approx(np.abs(given - labels).mean(), rel=1e-4)
        assert details["baseline"]["mae"] == pytest.approx(np.abs(labels - prepared.settings["mean"]).mean())
    else:
        same = [one == other for one, other in zip(given, labels, strict=True)]
        assert 100 * np.mean(same) == pytest.approx(found["accuracy"])
    if kind == "classification":
        counts = np.array(details["confusion"]["counts"])
        assert counts.sum() == len(entries) and 0 < np.trace(counts) < counts.sum()
        assert [row["support"] for row in details["classes"]] == counts.sum(axis=1).tolist()
        assert details["confusion"]["labels"] == [row["label"] for row in details["classes"]] == ["neg", "none", "pos"]


@pytest.mark.parametrize("kind", ["classification", "multi-label"])
def test_a_label_that_a_split_lacks_is_not_measured_and_makes_nothing_perfect(prepare_table, tmp_path, kind):
    write_csv(tmp_path / "dev.csv", [{"text": f"so bad {n}", "label": ("neg", "none")[n % 2]} for n in range(9)])
    rows = [{"text": f"so {n}", "label": ("pos", "neg", "none")[min(2, n % 4)]} for n in range(60)]
    prepared = prepare_table(kind, rows=rows, valid="dev.csv", test="dev.csv")
    right = logits_for(prepared, "valid", noise=0)
    found = score(prepared, "valid", right)
    assert found.keys() & {"accuracy", "tuned_micro_f1"} and not found.keys() & {"macro_f1", "tuned_macro_f1", "mcc"}
    write_outputs(tmp_path / "outputs", right, prepared.split("valid"))
    table = write_report(evaluated(prepared, tmp_path, splits=["valid"]), tmp_path)
    assert "- custom, valid: no example has the label 'pos', so it is not measured" in table
    report = (tmp_path / "report.md").read_text()
    assert re.search(r"\| (tuned_)?macro_f1 \| not measured \|", report)
    assert ("| mcc | not measured |" in report) == (kind == "classification")
    assert "| pos | not measured | not measured | not measured | 0 |" in report
    if kind == "classification":  # none is the most frequent label of training, neg that of the development set
        f1s = {"f1_neg": 0, "f1_none": pytest.approx(800 / 13), "f1_pos": 0}
        baseline = details_of(prepared, "valid", right)["baseline"]
        assert baseline == {"accuracy": pytest.approx(400 / 9), **f1s}


def test_the_threshold_is_the_given_one_or_the_best(prepare_table):
    prepared = prepare_table("multi-label", valid_share=0.5)
    outputs = RawOutputs(logits=logits_for(prepared, "valid", noise=1.0).logits - 2)  # all too sceptical
    tuned, given = score(prepared, "valid", outputs), score(prepared, "valid", outputs, threshold=0.5)
    assert given["threshold"] == 0.5 > tuned["threshold"]
    assert tuned["tuned_micro_f1"] > given["tuned_micro_f1"]
    with pytest.raises(ValueError, match="--threshold goes with two labels, and there are 3"):
        score(prepare_table(), "train", outputs, threshold=0.5)


def test_answers_have_the_metrics_of_squad_and_a_threshold_for_none(prepare_table, tmp_path):
    prepared = prepare_table("question-answering", valid_share=0.9)
    split, rng = prepared.split("valid"), np.random.default_rng(0)
    columns = {name: np.asarray(values) for name, values in split.columns.items()}
    sizes = [len(split.sequences[number]) for number in range(len(split))]
    starts, ends = ([rng.normal(size=size).astype(np.float32) for size in sizes] for _ in range(2))
    for number in np.flatnonzero(columns["has_answer"]):
        starts[number][columns["start"][number]] = ends[number][columns["end"][number]] = 9
    right = 6.0 * columns["has_answer"] - 5  # too sceptical: -5 and 1
    answerable = (right + rng.normal(size=len(right))).astype(np.float32)
    outputs = RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=answerable)
    found = score(prepared, "valid", outputs, folder=tmp_path)
    assert found["tuned_exact_match"] > 95 and 0 < found["threshold"] < 1
    unanswered = 100 * (1 - columns["has_answer"].mean())
    assert score(prepared, "valid", outputs, threshold=0.0)["tuned_exact_match"] == pytest.approx(unanswered)
    details = details_of(prepared, "valid", outputs)
    assert details["baseline"]["tuned_exact_match"] == pytest.approx(unanswered)
    low, high = details["intervals"]["tuned_f1"]
    assert low <= found["tuned_f1"] <= high
    entries = entries_in(tmp_path / "valid.predictions.jsonl")
    same = [entry["prediction"] in (entry["label"] or [""]) for entry in entries]
    assert 100 * np.mean(same) == pytest.approx(found["tuned_exact_match"])


@pytest.mark.parametrize("is_plain", [False, True])
def test_tags_have_the_metrics_of_the_tagging_task(prepare_table, tmp_path, is_plain):
    rows = rows_of("tagging", 60)
    if is_plain:
        rows = [{**row, "tags": [tag[0] + "X" for tag in row["tags"]]} for row in rows]
    prepared = prepare_table("tagging", rows=rows)
    sentences, rng = Sentences(prepared.split("train")), np.random.default_rng(0)
    labels = prepared.settings["labels"]
    sizes = prepared.split("train").sequences.sizes
    logits = [rng.normal(size=(size, len(labels))).astype(np.float32) for size in sizes]
    for window, position, tag in zip(sentences.windows, sentences.positions, sentences.tags, strict=True):
        logits[window][position, tag] += 2.5
    outputs = RawOutputs(token_logits=logits)
    found = score(prepared, "train", outputs, folder=tmp_path)
    entries = entries_in(tmp_path / "train.predictions.jsonl")
    assert [entry["id"] for entry in entries] == [record["id"] for record in prepared.split("train").records()]
    right, given = [entry["label"] for entry in entries], [entry["prediction"] for entry in entries]
    same = [one == other for one, other in zip(chain(*right), chain(*given), strict=True)]
    assert 0 < sum(same) < len(same)
    assert found["accuracy"] == pytest.approx(100 * np.mean(same))
    details = details_of(prepared, "train", outputs)
    assert details["num_examples"] == len(entries)
    assert details["intervals"].keys() == found.keys() == details["baseline"].keys()
    for name, (low, high) in details["intervals"].items():
        assert low < found[name] < high
        assert details["baseline"][name] < found[name]
    if is_plain:
        assert found.keys() == {"accuracy"}
        assert np.array(details["confusion"]["counts"]).sum() == len(same)
        return
    numbers = np.array([labels.index(tag) for tag in chain(*given)])
    wanted = TagCounts(sentences.tags, numbers, sentences.is_first, ["FINE"]).metrics()
    assert found == pytest.approx({name: wanted[name] for name in found})
    assert [row["label"] for row in details["classes"]] == ["FINE"]
    assert details["classes"][0]["f1"] == pytest.approx(found["f1"])
    assert details["classes"][0]["support"] == sum(tags.count("B-FINE") for tags in right)


@pytest.mark.parametrize(
    ("kind", "options", "task", "metric"),
    [
        ("multiple-choice", {}, "race", "accuracy"),
        ("multi-label", {}, "roberta_sentence_prediction", "tuned_micro_f1"),
        ("question-answering", {}, "squad2", "tuned_f1"),
        ("tagging", {}, "roberta_tagging", "f1"),
        ("classification", {"class_weights": "balanced"}, "roberta_sentence_prediction", "macro_f1"),
    ],
)
def test_the_recipe_goes_to_the_task_of_the_kind(prepare_table, kind, options, task, metric):
    recipe = benchmark_of("custom").recipe(prepare_table(kind, **options))
    assert recipe.train["task"] == recipe.train["criterion"] == task
    assert recipe.metric["value"] == metric


def two_labels(prepare_table, **options):
    rows = [row for row in rows_of("classification", 300) if row["label"] != "none"]
    return prepare_table(rows=rows, **{"valid_share": 0.4, **options})


def test_two_labels_have_a_threshold_and_a_temperature_of_the_development_set(prepare_table, tmp_path):
    write_csv(tmp_path / "new.csv", [{"text": f"so good {n}"} for n in range(9)])
    prepared = two_labels(prepare_table, fold="1/3", test="new.csv")
    assert prepared.splits == ("train", "valid", "held_out", "test")
    outputs = {split: logits_for(prepared, split, noise=3.0) for split in ("valid", "held_out")}
    outputs["test"] = RawOutputs(logits=np.eye(2, dtype=np.float32)[[0] * 9])
    for split, raw in outputs.items():
        write_outputs(tmp_path / "outputs", raw, prepared.split(split))
    options = CustomOptions(tune_threshold="macro_f1", calibrate=True)
    valid, held_out, _ = evaluated(prepared, tmp_path, options=options)

    def odds(split):
        return np.diff(outputs[split].logits.astype(np.float64))[:, 0] / valid.ensemble["temperature"]

    right = np.asarray(prepared.split("valid").columns["label"])
    found = 1 / (1 + np.exp(-odds("valid")))
    best = max(sk.f1_score(right, found >= limit, average="macro") for limit in found)
    assert valid.ensemble["tuned_macro_f1"] == pytest.approx(100 * best)
    assert sk.f1_score(right, found >= valid.ensemble["threshold"], average="macro") == pytest.approx(best)
    assert valid.ensemble["temperature"] > 1.2, "the noise is too sure of itself"
    assert all(held_out.ensemble[name] == valid.ensemble[name] for name in ("threshold", "temperature"))
    right = np.asarray(prepared.split("held_out").columns["label"])
    found = 1 / (1 + np.exp(-odds("held_out")))
    assert held_out.ensemble["roc_auc"] == pytest.approx(100 * sk.roc_auc_score(right, found))
    assert held_out.ensemble["average_precision"] == pytest.approx(100 * sk.average_precision_score(right, found))
    accuracy = sk.accuracy_score(right, found >= valid.ensemble["threshold"])
    assert held_out.ensemble["tuned_accuracy"] == pytest.approx(100 * accuracy)
    assert held_out.details["baseline"]["roc_auc"] == 50
    calibration = held_out.details["calibration"]
    assert calibration["after"]["loss"] == pytest.approx(sk.log_loss(right, found))
    assert calibration["after"]["loss"] < calibration["before"]["loss"]

    hardest = held_out.details["hardest"]
    losses = -np.log(np.where(right == 1, found, 1 - found))
    assert [each["loss"] for each in hardest] == pytest.approx(np.sort(losses)[::-1][: len(hardest)])
    written = {entry["id"]: entry for entry in entries_in(tmp_path / "results" / "held_out.predictions.jsonl")}
    rows = (tmp_path / "my.csv").read_text().splitlines()
    for each in hardest:
        assert f"{each['text']},{each['label']}" == rows[each["line"] - 1]
        assert each["prediction"] == written[each["id"]]["prediction"]
    write_report([valid, held_out], tmp_path / "results")
    report = (tmp_path / "results" / "report.md").read_text()
    assert "| id | line | text | label | predicted | loss |" in report
    assert re.search(r"Expected calibration error [\d.]+ %.* with the temperature [\d.]+", report)


def test_what_was_tuned_and_selected_is_in_every_table_under_its_name(prepare_table, tmp_path, monkeypatch):
    monkeypatch.setattr(custom, "NUM_SAMPLES", 20)
    prepared = two_labels(prepare_table, positive_label="neg")
    assert prepared.settings["labels"] == ["pos", "neg"]
    outputs = logits_for(prepared, "valid", noise=3.0)
    write_outputs(tmp_path / "outputs", outputs, prepared.split("valid"))
    right = np.asarray(prepared.split("valid").columns["label"])
    of_neg = np.diff(outputs.logits)[:, 0]
    for tuned, selection, names in (
        (None, "f1", {"macro_f1", "f1", "roc_auc", "average_precision"}),
        (None, "f1_pos", {"f1", "f1_pos"}),
        (None, "acc_and_f1", {"acc_and_f1"}),
        ("f1", "macro_f1", {"tuned_f1", "tuned_macro_f1", "roc_auc"}),
        ("acc_and_f1", "f1_pos", {"tuned_f1", "tuned_acc_and_f1", "tuned_f1_pos"}),
    ):
        folder = tmp_path / f"{tuned} {selection}"
        wishes = {"options": CustomOptions(tune_threshold=tuned), "selection": selection, "splits": ["valid"]}
        (found,) = evaluated(prepared, tmp_path, output_dir=folder, **wishes)
        assert names <= found.ensemble.keys() and names <= found.baseline.keys() and names <= found.tf_idf.keys()
        hidden = {"f1_neg", "f1_pos", "tuned_f1_neg", "tuned_f1_pos", "acc_and_f1", "tuned_acc_and_f1"}
        assert found.ensemble.keys() & hidden <= names
        assert {name for name in found.ensemble if "macro" in name} in ({"macro_f1"}, {"tuned_macro_f1"})
        assert any(selection in name for name in found.ensemble)
        printed = write_report([found], folder)
        rows = json.loads((folder / "results.json").read_text())
        assert names <= {row["metric"] for row in rows} and all(row["tf_idf"] is not None for row in rows)
        read = Evaluation.read(folder / "evaluation_valid.json")
        assert (read.ensemble, read.tf_idf, read.selection) == (found.ensemble, found.tf_idf, selection)
        for text in (printed, *((folder / name).read_text() for name in ("results.md", "report.md"))):
            assert all(f"| {name} |" in text for name in names) and "| TF-IDF" in text
        if selection == "f1":
            assert found.ensemble["f1"] == pytest.approx(100 * sk.f1_score(right, of_neg >= 0))
            precision = sk.average_precision_score(right, of_neg)
            assert found.ensemble["average_precision"] == pytest.approx(100 * precision)
        assert "TF-IDF with logistic regression is as good or better (" in printed, "texts of good and bad are easy"
        assert re.search(r"valid: \w*f1 and .* are those of the label 'neg'", printed)


def test_a_model_is_judged_once_for_metrics_and_report(prepare_table, tmp_path, monkeypatch):
    monkeypatch.setattr(custom, "NUM_SAMPLES", 20)
    prepared, judged, calls = two_labels(prepare_table), Classification.judged, []
    monkeypatch.setattr(Classification, "judged", lambda *given: calls.append(given) or judged(*given))
    write_outputs(tmp_path / "outputs", logits_for(prepared, "valid", noise=3.0), prepared.split("valid"))
    (found,) = evaluated(prepared, tmp_path, splits=["valid"])
    assert found.details["baseline"] and found.tf_idf
    assert len(calls) == 3, "the model, the constant answer, and TF-IDF"


def test_a_selected_label_with_parentheses_is_in_the_tables(prepare_table, tmp_path, monkeypatch):
    monkeypatch.setattr(custom, "NUM_SAMPLES", 20)
    rows = [row | {"label": row["label"].replace("good", "bad (b)")} for row in rows_of("multi-label", 120)]
    write_csv(tmp_path / "new.csv", [row for row in rows if row["label"] in ("", "bad (b)")])  # without one label
    prepared = prepare_table("multi-label", rows=rows, test="new.csv", valid_share=0.4)
    assert prepared.settings["labels"] == ["bad", "bad (b)"]
    for split in ("valid", "test"):
        write_outputs(tmp_path / "outputs", logits_for(prepared, split, noise=9.0), prepared.split(split))
    found = evaluated(prepared, tmp_path, selection="f1_bad (b)")
    for each in found:
        assert "tuned_f1_bad (b)" in each.ensemble and not {"tuned_f1_bad", "f1_bad (b)"} & each.ensemble.keys()
    assert "tuned_macro_f1" not in found[1].ensemble
    assert "as good or better (tuned_f1_bad (b) 100.0; the model" in write_report(found, tmp_path)


@pytest.mark.parametrize(
    ("kind", "preparing", "scoring", "message"),
    [
        ("classification", {"positive_label": "x"}, {}, "--positive-label x: there is no such label; there are neg, "),
        ("classification", {"positive_label": "pos"}, {}, "--positive-label pos: it goes with two labels, not with 3"),
        ("multi-label", {"positive_label": "x"}, {}, "--positive-label goes with --kind classification or pair, not"),
        (
            "classification",
            {"labels": ("pos", "neg", "none"), "positive_label": "x"},
            {},
            "--positive-label x: there is no such label; there are pos, neg, none",
        ),
        ("classification", {}, {"tune_threshold": "f1"}, "--tune-threshold goes with two labels, and there are 3: neg"),
        ("classification", {}, {"threshold": 0.3}, "--threshold goes with two labels"),
        ("multi-label", {}, {"calibrate": True}, "--calibrate goes with classification, but this is multi_label"),
        ("regression", {}, {"threshold": 0.5}, "--threshold goes with classification and multi_label and question_an"),
    ],
)
def test_options_of_labels_that_do_not_fit_are_named_before_a_training(
    prepare_table, kind, preparing, scoring, message
):
    with pytest.raises(ValueError, match=message):
        prepared = prepare_table(kind, **preparing)
        kind_of(prepared).check_scoring(CustomOptions(**scoring), prepared.split("valid"))


def test_a_development_set_of_one_label_chooses_neither_threshold_nor_temperature(prepare_table, tmp_path):
    write_csv(tmp_path / "dev.csv", [{"text": f"so bad {n}", "label": "neg"} for n in range(9)])
    prepared = two_labels(prepare_table, valid="dev.csv", valid_share=None)
    for options, name in (({"tune_threshold": "f1"}, "--tune-threshold"), ({"calibrate": True}, "--calibrate")):
        with pytest.raises(ValueError, match=f"{name} needs a development set with examples of several labels"):
            kind_of(prepared).check_scoring(CustomOptions(**options), prepared.split("valid"))
    assert "roc_auc" not in score(prepared, "valid", logits_for(prepared, "valid", noise=1))
    with pytest.raises(ValueError, match="The temperature is found on the development set, not on the split train"):
        score(prepared, "train", logits_for(prepared, "train", noise=1), calibrate=True)


def test_folds_with_a_share_hold_each_row_out_once(prepare_table):
    ids = []
    for number in range(1, 4):
        prepared = two_labels(prepare_table, fold=f"{number}/3", valid_share=0.2)
        parts = [{record["id"] for record in prepared.split(name).records()} for name in prepared.splits]
        assert len(set.union(*parts)) == sum(map(len, parts)), "no row is in two splits"
        assert len(parts[1]) == pytest.approx(0.2 * (len(parts[0]) + len(parts[1])), rel=0.3)
        ids += parts[2]
    assert len(ids) == len(set(ids)) == sum(map(len, parts))


@pytest.mark.parametrize("name", own_kinds())
def test_what_is_predicted_of_a_test_set_does_not_depend_on_its_answers(prepare_table, tmp_path, name):
    """No kind finds a number on another split than the development set; each finds those that it declares there."""
    rows = [row for row in rows_of(name.replace("_", "-"), 60) if row.get("label") != "none"]
    found = []
    for output in ("without", "with"):
        columns = [column for column in rows[0] if output == "with" or column not in ("label", "answer", "tags")]
        write_json_lines(tmp_path / "test.jsonl", [{column: row[column] for column in columns} for row in rows])
        prepared = prepare_table(name.replace("_", "-"), rows=rows, test="test.jsonl", valid_share=0.5)
        kind, train = table_kind(prepared.settings), prepared.split("train")
        wishes = {wish: "f1" if wish == "tune_threshold" else True for wish in kind.decides_by.values() if wish}
        valid, test = prepared.split("valid"), prepared.split("test")
        for options in (CustomOptions(), CustomOptions(**wishes)):
            try:
                outcome = kind.outcome(test, [random_outputs(kind, test)], train=train, options=options.given("score"))
                found.append([{**entry, "label": None, "gold": None} for entry in outcome.entries()])
            except ValueError as error:
                found.append(str(error))
        outcome = kind.outcome(valid, [random_outputs(kind, valid)], train=train, options=options.given("score"))
        assert kind.numbers_of(outcome.numbers).keys() == kind.decides_by.keys()
    assert found[:2] == found[2:]
    always = "" in kind.decides_by.values()
    refused = ["found on the development set, not on the split test" in each for each in found[:2]]
    assert refused == [always, bool(kind.decides_by)]


def run_evaluated(prepared, *runs, folder, **changes):
    """Of runs in a folder of `roberta finetune`."""
    checkpoints = [run / "checkpoints" / "checkpoint_best.pt" for run in runs]
    stored = [run / "outputs" for run in runs]
    return evaluated(prepared, folder, output_dir=folder, checkpoints=checkpoints, stored=stored, **changes)


def test_a_test_set_is_judged_by_what_was_found_before_or_refused(prepare_table, tmp_path):
    """Each model by its own threshold, the ensemble by that of the ensemble, also in a later evaluation of its own."""
    write_json_lines(tmp_path / "new.jsonl", rows_of("multi-label", 60, seed=2))
    prepared, out = prepare_table("multi-label", valid_share=0.5, test="new.jsonl"), tmp_path / "out" / "results"
    runs = [tmp_path / "out" / "runs" / "lr-1" / f"seed-{seed}" for seed in (1, 2)]
    for number, run in enumerate(runs):
        for split in ("valid", "test"):  # the models give too few labels, more so the second, and of the test set
            logits = logits_for(prepared, split, noise=1.0, seed=number).logits - 1 - number - (split == "test")
            write_outputs(run / "outputs", RawOutputs(logits=logits), prepared.split(split))

    def metrics(evaluation):
        return [evaluation.ensemble, *(member["metrics"] for member in evaluation.members)]

    valid, test = run_evaluated(prepared, *runs, folder=out)
    thresholds = [each["threshold"] for each in metrics(test)]
    assert thresholds == [each["threshold"] for each in metrics(valid)] and len(set(thresholds)) == 3
    on_test = {"splits": ["test"]}
    assert run_evaluated(prepared, *runs, folder=out, **on_test) == [test]
    (alone,) = run_evaluated(prepared, runs[1], folder=tmp_path / "alone", **on_test)  # by its fine-tuning's record
    assert alone.ensemble == metrics(test)[2]
    given = CustomOptions(threshold=0.5)
    (found,) = run_evaluated(prepared, runs[1], folder=tmp_path / "x", options=given, **on_test)
    assert found.ensemble["threshold"] == 0.5
    (out / "evaluation_valid.json").unlink()
    for chosen in (runs, runs[:1]):
        with pytest.raises(ValueError, match="The threshold is found on the development set, not on the split test"):
            run_evaluated(prepared, *chosen, folder=tmp_path / "elsewhere", **on_test)


def test_a_test_set_is_judged_by_threshold_and_temperature_of_the_run_whatever_options_say(prepare_table, tmp_path):
    """As `roberta predict` decides; a threshold for another metric is none."""
    write_csv(tmp_path / "new.csv", [row for row in rows_of("classification", 60, seed=2) if row["label"] != "none"])
    prepared = two_labels(prepare_table, test="new.csv")
    run, other = (tmp_path / "out" / "runs" / "lr-1" / f"seed-{seed}" for seed in (1, 2))
    for split in ("valid", "test"):
        for each in (run, other):
            write_outputs(each / "outputs", logits_for(prepared, split, noise=3.0), prepared.split(split))

    def by(folder, splits, *runs, **options):
        given = {"splits": splits, "options": CustomOptions(**options)}
        return run_evaluated(prepared, *(runs or (run,)), folder=tmp_path / folder, **given)

    wishes = {"tune_threshold": "mcc", "calibrate": True}
    _, test = by("out/results", ["valid", "test"], **wishes)
    assert {"threshold", "temperature", "tuned_mcc"} <= test.ensemble.keys()
    for number, options in enumerate(({}, wishes, {"tune_threshold": "mcc"}, {"calibrate": True})):
        (alone,) = by(f"alone{number}", ["test"], **options)
        assert (alone.ensemble, alone.tf_idf) == (test.ensemble, test.tf_idf)
    (given,) = by("given", ["test"], threshold=0.25)
    assert given.ensemble["threshold"] == 0.25 and given.ensemble["temperature"] == test.ensemble["temperature"]
    with pytest.raises(ValueError, match="The threshold is found on the development set, not on the split test"):
        by("other", ["test"], tune_threshold="f1")
    by("plain", ["valid"])
    (plain,) = by("plain", ["test"])
    assert "threshold" not in plain.ensemble, "as the development set was judged there"
    with pytest.raises(ValueError, match="the ensemble's are found on the development set: evaluate `valid` too"):
        by("both", ["test"], run, other)
    (ensemble,) = by("both", ["test"], run, other, threshold=0.25, temperature=1.0)
    assert ensemble.ensemble["threshold"] == 0.25
