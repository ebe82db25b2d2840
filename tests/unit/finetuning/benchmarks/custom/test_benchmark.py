"""Outputs of models become metrics, details and files, for every kind."""

import json
import re
from itertools import chain

import numpy as np
import pytest
import sklearn.metrics as sk

from roberta_plugin.experiments.evaluation import EvaluateSettings, Evaluation
from roberta_plugin.experiments.evaluation import evaluate as evaluate_splits
from roberta_plugin.experiments.evaluation_report import write_report
from roberta_plugin.finetuning.benchmarks import benchmark_of, custom, kind_of
from roberta_plugin.finetuning.kinds import OWN, table_kind
from roberta_plugin.finetuning.kinds.classification import Classification
from roberta_plugin.finetuning.kinds.entities import Sentences, TagCounts
from roberta_plugin.finetuning.kinds.outputs import Outcome, RawOutputs, write_outputs
from roberta_plugin.finetuning.options import CustomOptions
from tests.tiny_benchmarks import random_outputs
from tests.tiny_tables import rows_of, write_csv, write_json_lines

NONE = CustomOptions()


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
    prepared, options = prepare_table(kind), CustomOptions(threshold=0.5 if kind == "multi-label" else None)
    right = logits_for(prepared, "train", noise=0)
    assert benchmark_of("custom").score(prepared, "train", [right], folder=None, options=options)[
        FIRST[kind]
    ] == pytest.approx(100)

    outputs = [logits_for(prepared, "train", noise=2.6, seed=seed) for seed in range(4)]
    found = benchmark_of("custom").score(prepared, "train", outputs, folder=tmp_path, options=options)
    assert benchmark_of("custom").recipe(prepared).compared_by in found
    single = benchmark_of("custom").score(prepared, "train", outputs[:1], folder=None, options=options)
    details = benchmark_of("custom").judge(prepared, "train", outputs, folder=None, options=options)[1]
    assert found[FIRST[kind]] > single[FIRST[kind]], "an ensemble averages the noise away"
    assert details["intervals"].keys() == found.keys() - {"threshold"}
    for name, (low, high) in details["intervals"].items():
        assert low <= found[name] <= high and (low, high) != (found[name], found[name])
    assert all(value < found[name] for name, value in details["baseline"].items())
    assert json.loads(json.dumps(details)).keys() == details.keys()

    entries = [json.loads(line) for line in (tmp_path / "train.predictions.jsonl").read_text().splitlines()]
    assert [entry["id"] for entry in entries] == [record["id"] for record in prepared.split("train").records()]
    if kind in ("classification", "multiple-choice"):
        assert 100 * np.mean([entry["prediction"] == entry["label"] for entry in entries]) == pytest.approx(
            found["accuracy"]
        )
    elif kind == "multi-label":
        exact = [sorted(entry["prediction"]) == sorted(entry["label"]) for entry in entries]
        assert 100 * np.mean(exact) == pytest.approx(found["tuned_exact_match"])
    else:
        pairs = np.array([[entry["prediction"], entry["label"]] for entry in entries])
        assert 100 * np.corrcoef(pairs.T)[0, 1] == pytest.approx(found["pearson"], abs=1e-3)
        assert pairs[:, 0].mean() == pytest.approx(1500, abs=200)  # on the scale of the table
        assert found["mae"] == pytest.approx(np.abs(pairs[:, 0] - pairs[:, 1]).mean(), rel=1e-4)
        mean = prepared.settings["mean"]
        assert details["baseline"]["mae"] == pytest.approx(np.abs(pairs[:, 1] - mean).mean())


def test_the_confusion_matrix_and_the_table_of_labels_count_the_examples(prepare_table):
    prepared = prepare_table()
    details = benchmark_of("custom").judge(
        prepared, "train", [logits_for(prepared, "train", noise=2.0)], folder=None, options=NONE
    )[1]
    counts = np.array(details["confusion"]["counts"])
    assert counts.sum() == len(prepared.split("train"))
    assert 0 < np.trace(counts) < counts.sum()
    assert [row["support"] for row in details["classes"]] == counts.sum(axis=1).tolist()
    assert details["confusion"]["labels"] == [row["label"] for row in details["classes"]] == ["neg", "none", "pos"]


@pytest.mark.parametrize("kind", ["classification", "multi-label"])
def test_a_label_that_a_split_lacks_is_not_measured_and_makes_nothing_perfect(prepare_table, tmp_path, kind):
    write_csv(tmp_path / "dev.csv", [{"text": f"so bad {n}", "label": ("neg", "none")[n % 2]} for n in range(9)])
    rows = [{"text": f"so {n}", "label": ("pos", "neg", "none")[min(2, n % 4)]} for n in range(60)]
    prepared = prepare_table(kind, rows=rows, valid="dev.csv", test="dev.csv")
    right = [logits_for(prepared, "valid", noise=0)]
    found = benchmark_of("custom").score(prepared, "valid", right, folder=None, options=NONE)
    assert found.keys() & {"accuracy", "tuned_micro_f1"} and not found.keys() & {"macro_f1", "tuned_macro_f1", "mcc"}
    settings = {"data": prepared.folder, "checkpoints": [tmp_path / "none.pt"], "output_dir": tmp_path}
    write_outputs(tmp_path / "outputs", right[0], prepared.split("valid"))
    evaluations = evaluate_splits(EvaluateSettings(**settings, splits=["valid"], stored=[tmp_path / "outputs"]))
    table = write_report(evaluations, tmp_path)
    assert "- custom, valid: no example has the label 'pos', so it is not measured" in table
    report = (tmp_path / "report.md").read_text()
    assert re.search(r"\| (tuned_)?macro_f1 \| not measured \|", report) and ("| mcc | not measured |" in report) == (
        kind == "classification"
    )
    assert "| pos | not measured | not measured | not measured | 0 |" in report
    if kind == "classification":  # none is the most frequent label of training, neg that of the development set
        details = benchmark_of("custom").judge(prepared, "valid", right, folder=None, options=NONE)[1]
        f1s = {"f1_neg": 0, "f1_none": pytest.approx(800 / 13), "f1_pos": 0}
        assert details["baseline"] == {"accuracy": pytest.approx(400 / 9), **f1s}


def test_the_threshold_is_the_given_one_or_the_best(prepare_table):
    prepared = prepare_table("multi-label", valid_share=0.5)
    outputs = [RawOutputs(logits=logits_for(prepared, "valid", noise=1.0).logits - 2)]  # all too sceptical
    tuned = benchmark_of("custom").score(prepared, "valid", outputs, folder=None, options=NONE)
    given = benchmark_of("custom").score(prepared, "valid", outputs, folder=None, options=CustomOptions(threshold=0.5))
    assert given["threshold"] == 0.5 > tuned["threshold"]
    assert tuned["tuned_micro_f1"] > given["tuned_micro_f1"]
    other = prepare_table(output="other")
    with pytest.raises(ValueError, match="--threshold goes with two labels, and there are 3"):
        benchmark_of("custom").score(other, "train", outputs, folder=None, options=CustomOptions(threshold=0.5))


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
    outputs = [RawOutputs(start_logits=starts, end_logits=ends, answerable_logits=answerable)]
    found = benchmark_of("custom").score(prepared, "valid", outputs, folder=tmp_path, options=NONE)
    assert found["tuned_exact"] > 95 and 0 < found["threshold"] < 1
    given = benchmark_of("custom").score(prepared, "valid", outputs, folder=None, options=CustomOptions(threshold=0.0))
    unanswered = 100 * (1 - columns["has_answer"].mean())
    assert given["tuned_exact"] == pytest.approx(unanswered)
    details = benchmark_of("custom").judge(prepared, "valid", outputs, folder=None, options=NONE)[1]
    assert details["baseline"]["tuned_exact"] == pytest.approx(unanswered)
    low, high = details["intervals"]["tuned_f1"]
    assert low <= found["tuned_f1"] <= high
    entries = [json.loads(line) for line in (tmp_path / "valid.predictions.jsonl").read_text().splitlines()]
    same = [entry["prediction"] in (entry["label"] or [""]) for entry in entries]
    assert 100 * np.mean(same) == pytest.approx(found["tuned_exact"])


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
    outputs = [RawOutputs(token_logits=logits)]
    found = benchmark_of("custom").score(prepared, "train", outputs, folder=tmp_path, options=NONE)
    entries = [json.loads(line) for line in (tmp_path / "train.predictions.jsonl").read_text().splitlines()]
    assert [entry["id"] for entry in entries] == [record["id"] for record in prepared.split("train").records()]
    right, given = [entry["label"] for entry in entries], [entry["prediction"] for entry in entries]
    same = [one == other for one, other in zip(chain(*right), chain(*given), strict=True)]
    assert 0 < sum(same) < len(same)
    assert found["accuracy"] == pytest.approx(100 * np.mean(same))
    details = benchmark_of("custom").judge(prepared, "train", outputs, folder=None, options=NONE)[1]
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


def test_the_recipe_goes_to_the_task_of_the_kind(prepare_table):
    assert benchmark_of("custom").recipe(prepare_table("multiple-choice")).train["task"] == "race"
    recipe = benchmark_of("custom").recipe(prepare_table("multi-label", output="labels"))
    assert (recipe.train["criterion"], recipe.metric["value"]) == ("roberta_sentence_prediction", "tuned_micro_f1")
    recipe = benchmark_of("custom").recipe(prepare_table("question-answering", output="answers"))
    assert (recipe.train["task"], recipe.metric["value"]) == ("squad2", "tuned_f1")
    recipe = benchmark_of("custom").recipe(prepare_table("tagging", output="tags"))
    assert (recipe.train["task"], recipe.metric["value"]) == ("roberta_tagging", "f1")
    weighted = benchmark_of("custom").recipe(prepare_table(class_weights="balanced", output="weighted"))
    assert weighted.metric["value"] == "macro_f1"


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
    settings = {"data": prepared.folder, "checkpoints": [tmp_path / "none.pt"], "output_dir": tmp_path / "results"}
    options = CustomOptions(tune_threshold="macro_f1", calibrate=True)
    valid, held_out, _ = evaluate_splits(EvaluateSettings(**settings, options=options, stored=[tmp_path / "outputs"]))

    def odds(split):
        return np.diff(outputs[split].logits.astype(np.float64))[:, 0] / valid.ensemble["temperature"]

    right = np.asarray(prepared.split("valid").columns["label"])
    found = 1 / (1 + np.exp(-odds("valid")))
    best = max(sk.f1_score(right, found >= limit, average="macro") for limit in found)
    assert valid.ensemble["tuned_macro_f1"] == pytest.approx(100 * best)
    assert sk.f1_score(right, found >= valid.ensemble["threshold"], average="macro") == pytest.approx(best)
    assert valid.ensemble["temperature"] > 1.2, "the noise is too sure of itself"
    assert {name: held_out.ensemble[name] for name in ("threshold", "temperature")} == {
        name: valid.ensemble[name] for name in ("threshold", "temperature")
    }
    right = np.asarray(prepared.split("held_out").columns["label"])
    found = 1 / (1 + np.exp(-odds("held_out")))
    assert held_out.ensemble["roc_auc"] == pytest.approx(100 * sk.roc_auc_score(right, found))
    assert held_out.ensemble["average_precision (pos)"] == pytest.approx(100 * sk.average_precision_score(right, found))
    assert held_out.ensemble["tuned_accuracy"] == pytest.approx(
        100 * sk.accuracy_score(right, found >= valid.ensemble["threshold"])
    )
    assert held_out.details["baseline"]["roc_auc"] == 50
    calibration = held_out.details["calibration"]
    assert calibration["after"]["loss"] == pytest.approx(sk.log_loss(right, found))
    assert calibration["after"]["loss"] < calibration["before"]["loss"]

    hardest = held_out.details["hardest"]
    losses = -np.log(np.where(right == 1, found, 1 - found))
    assert [each["loss"] for each in hardest] == pytest.approx(np.sort(losses)[::-1][: len(hardest)])
    lines = (tmp_path / "results" / "held_out.predictions.jsonl").read_text().splitlines()
    written = {entry["id"]: entry for entry in map(json.loads, lines)}
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
    settings = {"data": prepared.folder, "checkpoints": [tmp_path / "none.pt"], "stored": [tmp_path / "outputs"]}
    for number, (options, selection, names) in enumerate(
        [
            (NONE, "f1", {"macro_f1", "f1 (neg)", "roc_auc", "average_precision (neg)"}),
            (NONE, "f1_pos", {"f1_pos"}),
            (NONE, "acc_and_f1", {"acc_and_f1 (neg)"}),
            (CustomOptions(tune_threshold="f1"), "macro_f1", {"tuned_f1 (neg)", "tuned_macro_f1", "roc_auc"}),
            (CustomOptions(tune_threshold="acc_and_f1"), "f1_pos", {"tuned_acc_and_f1 (neg)", "tuned_f1_pos"}),
        ]
    ):
        folder = tmp_path / f"results{number}"
        (found,) = evaluate_splits(
            EvaluateSettings(**settings, output_dir=folder, options=options, selection=selection, splits=["valid"])
        )
        assert names <= found.ensemble.keys() and names <= found.baseline.keys() and names <= found.tf_idf.keys()
        hidden = {"f1_neg", "f1_pos", "tuned_f1_neg", "tuned_f1_pos", "acc_and_f1 (neg)", "tuned_acc_and_f1 (neg)"}
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
        if options is NONE and selection == "f1":
            assert found.ensemble["f1 (neg)"] == pytest.approx(100 * sk.f1_score(right, of_neg >= 0))
            precision = sk.average_precision_score(right, of_neg)
            assert found.ensemble["average_precision (neg)"] == pytest.approx(100 * precision)
        assert "TF-IDF with logistic regression is as good or better (" in printed, "texts of good and bad are easy"


def test_a_model_is_judged_once_for_metrics_and_report(prepare_table, tmp_path, monkeypatch):
    monkeypatch.setattr(custom, "NUM_SAMPLES", 20)
    prepared, judged, calls = two_labels(prepare_table), Classification.judged, []
    monkeypatch.setattr(Classification, "judged", lambda *given: calls.append(given) or judged(*given))
    write_outputs(tmp_path / "outputs", logits_for(prepared, "valid", noise=3.0), prepared.split("valid"))
    settings = {"data": prepared.folder, "checkpoints": [tmp_path / "none.pt"], "stored": [tmp_path / "outputs"]}
    (found,) = evaluate_splits(EvaluateSettings(**settings, output_dir=tmp_path / "out", splits=["valid"]))
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
    settings = {"data": prepared.folder, "checkpoints": [tmp_path / "none.pt"], "stored": [tmp_path / "outputs"]}
    found = evaluate_splits(EvaluateSettings(**settings, output_dir=tmp_path / "out", selection="f1_bad (b)"))
    for each in found:
        assert "f1_bad (b)" in each.ensemble and "f1_bad" not in each.ensemble
    assert "tuned_macro_f1" not in found[1].ensemble
    names = ("f1", "tuned_f1", "f1_a (b)", "tuned_f1_a (b)", "f1 (a)", "tuned_f1 (a)", "average_precision (a (b))")
    outcome = Outcome(entries=lambda: iter(()), num_examples=1, measure=lambda weights: dict.fromkeys(names, 0.0))
    assert outcome.without_metrics_of_all_labels().not_measured == names[4:], "f1 alone is that of answers or entities"
    assert "logistic regression is as good or better (f1_bad (b) 100.0; the model" in write_report(found, tmp_path)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("classification", {"positive_label": "x"}, "--positive-label x: there is no such label; there are neg, none"),
        ("classification", {"positive_label": "pos"}, "--positive-label pos: it goes with two labels, not with 3"),
        ("multi-label", {"positive_label": "good"}, "--positive-label goes with --kind classification or pair, not"),
        (
            "classification",
            {"labels": ("pos", "neg", "none"), "positive_label": "x"},
            "--positive-label x: there is no such label; there are pos, neg, none",
        ),
    ],
)
def test_a_positive_label_is_one_of_two(prepare_table, kind, options, message):
    with pytest.raises(ValueError, match=message):
        prepare_table(kind, **options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "classification",
            {"tune_threshold": "f1"},
            "--tune-threshold goes with two labels, and there are 3: neg, none",
        ),
        ("classification", {"threshold": 0.3}, "--threshold goes with two labels"),
        ("multi-label", {"calibrate": True}, "--calibrate goes with classification, and this is multi_label"),
        (
            "regression",
            {"threshold": 0.5},
            "--threshold goes with classification and multi_label and question_answering",
        ),
    ],
)
def test_options_of_the_scoring_that_do_not_fit_are_named_before_a_training(prepare_table, kind, options, message):
    prepared = prepare_table(kind)
    with pytest.raises(ValueError, match=message):
        kind_of(prepared).check_scoring(CustomOptions(**options), prepared.split("valid"))


def test_a_development_set_of_one_label_chooses_neither_threshold_nor_temperature(prepare_table, tmp_path):
    write_csv(tmp_path / "dev.csv", [{"text": f"so bad {n}", "label": "neg"} for n in range(9)])
    prepared = two_labels(prepare_table, valid="dev.csv", valid_share=None)
    for options, name in (({"tune_threshold": "f1"}, "--tune-threshold"), ({"calibrate": True}, "--calibrate")):
        with pytest.raises(ValueError, match=f"{name} needs a development set with examples of several labels"):
            kind_of(prepared).check_scoring(CustomOptions(**options), prepared.split("valid"))
    outputs = [logits_for(prepared, "valid", noise=1)]
    assert "roc_auc" not in benchmark_of("custom").score(prepared, "valid", outputs, folder=None, options=NONE)
    with pytest.raises(ValueError, match="The temperature is found on the development set, not on the split train"):
        benchmark_of("custom").score(
            prepared,
            "train",
            [logits_for(prepared, "train", noise=1)],
            folder=None,
            options=CustomOptions(calibrate=True),
        )


def test_folds_with_a_share_hold_each_row_out_once(prepare_table):
    ids = []
    for number in range(1, 4):
        prepared = two_labels(prepare_table, fold=f"{number}/3", valid_share=0.2, output=f"fold-{number}")
        parts = [{record["id"] for record in prepared.split(name).records()} for name in prepared.splits]
        assert len(set.union(*parts)) == sum(map(len, parts)), "no row is in two splits"
        assert len(parts[1]) == pytest.approx(0.2 * (len(parts[0]) + len(parts[1])), rel=0.3)
        ids += parts[2]
    assert len(ids) == len(set(ids)) == sum(map(len, parts))


@pytest.mark.parametrize("name", OWN)
def test_what_is_predicted_of_a_test_set_does_not_depend_on_its_answers(prepare_table, tmp_path, name):
    """No kind finds a number on another split than the development set; each finds those that it declares there."""
    rows = [row for row in rows_of(name.replace("_", "-"), 60) if row.get("label") != "none"]
    found = []
    for output in ("without", "with"):
        columns = [column for column in rows[0] if output == "with" or column not in ("label", "answer", "tags")]
        write_json_lines(tmp_path / "test.jsonl", [{column: row[column] for column in columns} for row in rows])
        prepared = prepare_table(name.replace("_", "-"), rows=rows, test="test.jsonl", output=output, valid_share=0.5)
        kind, train = table_kind(prepared.settings), prepared.split("train")
        wishes = {wish: "f1" if wish == "tune_threshold" else True for wish in kind.decides_by.values() if wish}
        valid, test = prepared.split("valid"), prepared.split("test")
        for options in (NONE, CustomOptions(**wishes)):
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


def test_a_test_set_is_judged_by_what_was_found_before_or_refused(prepare_table, tmp_path):
    """Each model by its own threshold, the ensemble by that of the ensemble, also in a later evaluation of its own."""
    write_json_lines(tmp_path / "new.jsonl", rows_of("multi-label", 60, seed=2))
    prepared = prepare_table("multi-label", valid_share=0.5, test="new.jsonl")
    runs = [tmp_path / "out" / "runs" / "lr-1" / f"seed-{seed}" for seed in (1, 2)]
    for number, run in enumerate(runs):
        for split in ("valid", "test"):  # the models give too few labels, more so the second, and of the test set
            logits = logits_for(prepared, split, noise=1.0, seed=number).logits - 1 - number - (split == "test")
            write_outputs(run / "outputs", RawOutputs(logits=logits), prepared.split(split))

    def evaluated(*chosen, folder, **changes):
        checkpoints = [run / "checkpoints" / "checkpoint_best.pt" for run in chosen]
        stored = [run / "outputs" for run in chosen]
        settings = {"data": prepared.folder, "checkpoints": checkpoints, "stored": stored, "output_dir": folder}
        return evaluate_splits(EvaluateSettings(**settings, **changes))

    valid, test = evaluated(*runs, folder=tmp_path / "out" / "results")
    for before, after in zip([valid.ensemble, *_metrics(valid)], [test.ensemble, *_metrics(test)], strict=True):
        assert before["threshold"] == after["threshold"]
    assert len({each["threshold"] for each in (test.ensemble, *_metrics(test))}) == 3
    assert evaluated(*runs, folder=tmp_path / "out" / "results", splits=["test"]) == [test]
    (alone,) = evaluated(runs[1], folder=tmp_path / "alone", splits=["test"])  # by the record of its fine-tuning
    assert alone.ensemble == _metrics(test)[1]
    (given,) = evaluated(runs[1], folder=tmp_path / "x", splits=["test"], options=CustomOptions(threshold=0.5))
    assert given.ensemble["threshold"] == 0.5
    (tmp_path / "out" / "results" / "evaluation_valid.json").unlink()
    for chosen in (runs, runs[:1]):
        with pytest.raises(ValueError, match="The threshold is found on the development set, not on the split test"):
            evaluated(*chosen, folder=tmp_path / "elsewhere", splits=["test"])


def test_a_test_set_is_judged_by_threshold_and_temperature_of_the_run_whatever_options_say(prepare_table, tmp_path):
    """As `roberta predict` decides; a threshold for another metric is none."""
    write_csv(tmp_path / "new.csv", [row for row in rows_of("classification", 60, seed=2) if row["label"] != "none"])
    prepared, run = two_labels(prepare_table, test="new.csv"), tmp_path / "out" / "runs" / "lr-1" / "seed-1"
    for split in ("valid", "test"):
        write_outputs(run / "outputs", logits_for(prepared, split, noise=3.0), prepared.split(split))
    of_run = {"data": prepared.folder, "checkpoints": [run / "checkpoints" / "checkpoint_best.pt"]}

    def evaluated(folder, splits, **options):
        settings = {"output_dir": tmp_path / folder, "splits": splits, "options": CustomOptions(**options)}
        return evaluate_splits(EvaluateSettings(**of_run, stored=[run / "outputs"], **settings))

    wishes = {"tune_threshold": "mcc", "calibrate": True}
    _, test = evaluated("out/results", ["valid", "test"], **wishes)
    assert {"threshold", "temperature", "tuned_mcc"} <= test.ensemble.keys()
    for number, options in enumerate(({}, wishes, {"tune_threshold": "mcc"}, {"calibrate": True})):
        (alone,) = evaluated(f"alone{number}", ["test"], **options)
        assert (alone.ensemble, alone.tf_idf) == (test.ensemble, test.tf_idf)
    (given,) = evaluated("given", ["test"], threshold=0.25)
    assert given.ensemble["threshold"] == 0.25 and given.ensemble["temperature"] == test.ensemble["temperature"]
    with pytest.raises(ValueError, match="The threshold is found on the development set, not on the split test"):
        evaluated("other", ["test"], tune_threshold="f1")
    evaluated("plain", ["valid"])
    (plain,) = evaluated("plain", ["test"])
    assert "threshold" not in plain.ensemble, "as the development set was judged there"
    both = {**of_run, "checkpoints": of_run["checkpoints"] * 2, "stored": [run / "outputs"] * 2, "splits": ["test"]}
    with pytest.raises(ValueError, match="the ensemble's are found on the development set: evaluate `valid` too"):
        evaluate_splits(EvaluateSettings(**both, output_dir=tmp_path / "both", options=CustomOptions()))
    given = CustomOptions(threshold=0.25, temperature=1.0)
    (ensemble,) = evaluate_splits(EvaluateSettings(**both, output_dir=tmp_path / "both", options=given))
    assert ensemble.ensemble["threshold"] == 0.25


def _metrics(evaluation):
    return [member["metrics"] for member in evaluation.members]
