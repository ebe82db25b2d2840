"""SuperGLUE from files to scores: what a split holds, official metrics, official prediction files, grids."""

import json
import re
import zipfile
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import f1_score

from roberta_plugin.cli import main
from roberta_plugin.finetuning.benchmarks import benchmark_of, options_for
from roberta_plugin.finetuning.benchmarks.submission import SUPERGLUE as LEADERBOARD
from roberta_plugin.finetuning.benchmarks.submission import write_submission
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests import tiny_benchmarks
from tests.tiny_superglue import TASKS, write_lines, write_task
from tests.unit.finetuning.benchmarks.glue.test_prepare import texts

prepared_of = partial(tiny_benchmarks.prepared_of, max_length=120)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superglue") / "raw"
    for task in TASKS:
        write_task(folder, task)
    return folder


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    return {task: prepared_of(task, raw, folder / task) for task in TASKS}


def outputs(prepared, split, *, good=5.0, num_classes=None):
    """Logits of a model that likes what is good, and dislikes it if `good` is negative."""
    part = prepared.split(split)
    if num_classes is None:
        marks = [float(text.count("good")) for example in range(len(part)) for text in texts(prepared, split, example)]
        return RawOutputs(logits=np.array(marks, dtype=np.float32)[:, None] * good)
    logits = good * np.eye(num_classes)[np.asarray(part.columns["label"])]
    return RawOutputs(logits=logits.astype(np.float32))


def score(prepared, split, found, folder=None):
    task = prepared.task
    return benchmark_of(task).score(prepared, split, [found], folder=folder, options=options_for(task))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_wsc_learns_from_right_phrases_and_judges_every_row(prepared, raw):
    found = prepared["WSC"]
    labels = [row["label"] for row in lines(raw / "WSC" / "train.jsonl")]
    assert len(found.split("train")) == sum(labels) > 5
    first, *rivals = texts(found, "train", 0)
    assert re.fullmatch(r"I saw the (good|bad) \w+ and the (good|bad) \w+\. the good \w+ ran\.", first)
    assert any("the bad" in rival.split(".")[1] for rival in rivals)
    assert found.split("valid").columns["label"].tolist() == [row["label"] for row in lines(raw / "WSC" / "val.jsonl")]


def test_winogrande_puts_both_options_into_the_gap_and_reads_the_size_that_is_asked_for(prepared, raw, tmp_path):
    found = prepared["WinoGrande"]
    right, wrong = texts(found, "train", 0)
    assert re.search(r", so the good \w+ ran\.$", right) and re.search(r", so the bad \w+ ran\.$", wrong)
    assert len(found.split("train")) == 24 and found.settings["size"] == "xl"
    row = lines(raw / "WinoGrande" / "dev.jsonl")[2]
    first, second = texts(found, "valid", 2)
    assert row["option1"] in first.split(", so")[1] and row["option2"] in second.split(", so")[1]

    (raw / "WinoGrande" / "train_xs.jsonl").write_text(
        "".join((raw / "WinoGrande" / "train_xl.jsonl").read_text().splitlines(keepends=True)[:5])
    )
    small = prepared_of("WinoGrande", raw, tmp_path / "xs", size="xs")
    assert len(small.split("train")) == 5 and small.settings["size"] == "xs"


MULTIRC = r'\{"idx": 0, "passage": \{"questions": \[\{"idx": 0, "answers": \[\{"idx": 0, "label": [01]\}, .*\]\}\}'


@pytest.mark.parametrize(
    ("task", "name", "first"),
    [
        ("WSC", "WSC.jsonl", r'\{"idx": 0, "label": "(True|False)"\}'),
        ("WinoGrande", "WinoGrande.lst", "[12]"),
        ("BoolQ", "BoolQ.jsonl", r'\{"idx": 0, "label": "(true|false)"\}'),
        ("CB", "CB.jsonl", r'\{"idx": 0, "label": "(contradiction|neutral|entailment)"\}'),
        ("WiC", "WiC.jsonl", r'\{"idx": 0, "label": "(true|false)"\}'),
        ("MultiRC", "MultiRC.jsonl", MULTIRC),
        ("SuperRTE", "RTE.jsonl", r'\{"idx": 0, "label": "(not_)?entailment"\}'),
        ("COPA", "COPA.jsonl", r'\{"idx": 0, "label": [01]\}'),
        ("ReCoRD", "ReCoRD.jsonl", r'\{"idx": 0, "label": "(good|bad) \w+"\}'),
        ("CommonsenseQA", "CommonsenseQA.jsonl", r'\{"id": "0{32}", "answerKey": "[A-E]"\}'),
    ],
)
def test_test_sets_get_their_official_file_and_no_metrics(prepared, tmp_path, task, name, first):
    found = prepared[task]
    width = (3 if task == "CB" else 2) if found.settings.get("kind") == "classification" else 1
    logits = np.random.default_rng(0).normal(size=(len(found.split("test").sequences), width))
    assert score(found, "test", RawOutputs(logits=logits.astype(np.float32)), tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == [name] == list(benchmark_of(task).prediction_files("test"))
    written = (tmp_path / name).read_text().splitlines()
    assert re.fullmatch(first, written[0])
    assert len(written) == 6


@pytest.mark.parametrize("task", ["CB", "custom"])
def test_a_label_that_is_nowhere_counts_as_0_for_cb_in_validation_and_evaluation(task):
    """SuperGLUE's baseline takes the mean over all labels; scikit-learn's default, as of own tables, over those there."""
    rng = np.random.default_rng(0)
    answers, predictions = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    part = type("Part", (), {"name": "valid", "columns": {"label": answers}, "__len__": lambda self: 40})()
    kind = kind_class("classification")({"labels": ["a", "b", "c"]}, task_name=task)
    outputs = RawOutputs(logits=np.eye(3, dtype=np.float32)[predictions])
    outcome = kind.outcome(part, [outputs], options={})
    labels = {"labels": [0, 1, 2], "zero_division": 0.0} if task == "CB" else {}
    expected = pytest.approx(100 * f1_score(answers, predictions, average="macro", **labels))
    assert kind.validated(part, outputs, {})["macro_f1"] == outcome.measure(np.ones(40))["macro_f1"] == expected


def test_the_answers_of_multirc_are_all_in_the_file_by_question(prepared, tmp_path):
    found = prepared["MultiRC"]
    score(found, "valid", outputs(found, "valid", num_classes=2), tmp_path)
    written = lines(tmp_path / "MultiRC.valid.jsonl")
    answers = [answer for row in written for asked in row["passage"]["questions"] for answer in asked["answers"]]
    assert [answer["idx"] for answer in answers] == list(range(32))
    assert [answer["label"] for answer in answers] == found.split("valid").columns["label"].tolist()


def test_commonsense_qa_is_written_as_fairseq_writes_it(prepared, raw):
    row = lines(raw / "CommonsenseQA" / "train_rand_split.jsonl")[0]
    expected = [f"Q: Who ran?|A: {choice['text']}" for choice in row["question"]["choices"]]
    assert texts(prepared["CommonsenseQA"], "train", 0) == expected


def test_the_grids_are_those_of_their_sources(prepared):
    recipes = {task: benchmark_of(task).recipe(prepared[task]) for task in TASKS}
    assert list(recipes["WSC"].axes["batch"]) == ["8", "16", "32"]
    expected = {"batch-size": "16", "total-num-update": "2000", "max-update": "2000", "warmup-updates": "250"}
    assert recipes["WSC"].axes["batch"]["16"] == expected
    assert recipes["WSC"].train["phrase-cross-entropy"] == "true"
    assert list(recipes["WinoGrande"].axes["lr"]) == ["1e-5"]
    assert recipes["WinoGrande"].axes["batch"]["32"]["max-update"] == "19"  # one update per epoch of 24 rows
    assert recipes["CommonsenseQA"].axes["batch"]["8"]["max-update"] == "3000"
    assert recipes["CommonsenseQA"].train["task"] == recipes["COPA"].train["criterion"] == "race"
    official = {"MultiRC": "f1a", "ReCoRD": "f1"}
    assert {task: recipe.compared_by for task, recipe in recipes.items()} == {
        task: official.get(task, "accuracy") for task in TASKS
    }
    assert benchmark_of("CB").starts_from == "MNLI"
    assert recipes["MultiRC"].metric["value"] == "f1"
    assert benchmark_of("WSC").recipe(prepared["WSC"], epochs=2).axes["batch"]["8"]["max-update"] == str(
        2 * -(-len(prepared["WSC"].split("train")) // 8)
    )


def test_bad_files_are_named_with_their_line_and_leave_no_folder_behind(raw, tmp_path):
    for task, change in (("BoolQ", {"label": 1}), ("COPA", {"question": "why"})):
        rows = lines(raw / task / "train.jsonl")
        rows[3] |= change
        write_lines(tmp_path / task / "train.jsonl", rows)
        write_lines(tmp_path / task / "val.jsonl", lines(raw / task / "val.jsonl"))
        with pytest.raises(ValueError, match=f"{task}/train.jsonl, line 4: {next(iter(change))} is"):
            prepared_of(task, tmp_path, tmp_path / "set")
        assert not (tmp_path / "set").exists()


def test_wsc_without_anything_to_learn_from_is_refused(raw, tmp_path):
    rows = [{**row, "label": False} for row in lines(raw / "WSC" / "train.jsonl")]
    for name in ("train.jsonl", "val.jsonl"):
        write_lines(tmp_path / "WSC" / name, rows)
    with pytest.raises(ValueError, match="no row of the training file has a right phrase with rivals"):
        prepared_of("WSC", tmp_path, tmp_path / "set")


def test_the_diagnostic_sets_of_both_forms_are_predicted_by_the_model_of_rte(prepared, tmp_path):
    found = prepared["SuperRTE"]
    assert texts(found, "ax_b", 1) == texts(found, "ax_g", 1)
    for split, name in (("ax_b", "AX-b.jsonl"), ("ax_g", "AX-g.jsonl")):
        logits = np.tile(np.array([[0.0, 1.0]], np.float32), (6, 1))
        assert score(found, split, RawOutputs(logits=logits), tmp_path) == {}
        assert lines(tmp_path / name) == [{"idx": index, "label": "entailment"} for index in range(6)]


def test_answers_of_winogrande_may_be_in_the_list_beside_the_file(raw, tmp_path):
    expected = prepared_of("WinoGrande", raw, tmp_path / "expected")
    for name in ("train_xl", "dev", "test"):
        rows = lines(raw / "WinoGrande" / f"{name}.jsonl")
        answers = [row.pop("answer", None) for row in rows]
        write_lines(tmp_path / "raw" / f"{name}.jsonl", rows)
        if name != "test":
            (tmp_path / "raw" / f"{name}-labels.lst").write_text("".join(f"{answer}\n" for answer in answers))
    found = prepared_of("WinoGrande", tmp_path / "raw", tmp_path / "found")
    for split in expected.splits:
        assert [texts(found, split, at) for at in range(6)] == [texts(expected, split, at) for at in range(6)]
    assert found.split("valid").columns["label"].tolist() == expected.split("valid").columns["label"].tolist()
    assert found.content["source"]["files"] == 5, "a changed list is another source"
    listed = tmp_path / "raw" / "dev-labels.lst"
    listed.write_text(listed.read_text().replace("1", "3", 1))
    for change, message in (
        (lambda: None, r"dev-labels\.lst, line \d: answer is '3', and must be one of"),
        (lambda: listed.write_text("1\n"), r"dev-labels\.lst has 1 answers, and dev\.jsonl has 8 rows"),
        (listed.unlink, r"dev\.jsonl, line 1: there is no column 'answer'"),
    ):
        change()
        with pytest.raises(ValueError, match=message):
            prepared_of("WinoGrande", tmp_path / "raw", tmp_path / "wrong")


@pytest.fixture
def folder(tmp_path):
    """All files, one folder for each."""
    for file, number in LEADERBOARD.files.items():
        path = tmp_path / "runs" / file.removesuffix(".jsonl") / file
        path.parent.mkdir(parents=True)
        key = "passage" if file == "MultiRC.jsonl" else "label"
        path.write_text("".join(json.dumps({"idx": index, key: {}}) + "\n" for index in range(number)))
    return tmp_path / "runs"


def test_the_zip_has_the_ten_files_by_their_official_names(folder, tmp_path):
    found = write_submission(LEADERBOARD, tmp_path / "a.zip", [folder])
    names = ["AX-b", "AX-g", "BoolQ", "CB", "COPA", "MultiRC", "RTE", "ReCoRD", "WSC", "WiC"]
    assert sorted(found) == [f"{name}.jsonl" for name in names]
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read("AX-b.jsonl") == (folder / "AX-b" / "AX-b.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"idx": 0, "label": "true"}\n', "has 1 predictions, and the test set has 1,400 rows"),
        ('{"idx": 0, "label": "a"}\n' * 2, r"WiC\.jsonl, line 2: the id '0' occurs in .*WiC\.jsonl, line 1 already"),
        ('{"idx": 0}\n', r"WiC\.jsonl, line 1: there is no column 'label'"),
    ],
)
def test_a_file_that_the_server_would_refuse_is_refused(folder, tmp_path, content, message):
    (folder / "WiC" / "WiC.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        write_submission(LEADERBOARD, tmp_path / "a.zip", [folder])
    assert not (tmp_path / "a.zip").exists()


def test_the_command_asks_for_a_zip_and_for_results(tmp_path, capsys):
    words = ["evaluate", "--output-dir", str(tmp_path), "--leaderboard", "superglue"]
    assert main([*words, "--data", str(tmp_path), "--checkpoint", "model.pt"]) == 2
    assert "--leaderboard goes with --submission" in capsys.readouterr().err
    words = ["evaluate", "--output-dir", str(tmp_path / "new"), "--results", str(tmp_path)]
    for option in (["--leaderboard", "superglue"], ["--allow-incomplete"]):
        assert main([*words, *option]) == 2
        assert f"{option[0]} goes with --submission" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
