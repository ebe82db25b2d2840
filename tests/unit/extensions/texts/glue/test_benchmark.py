"""GLUE's metrics: of one model, of several, of the numbers that are written; the paper's numbers."""

import dataclasses
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from roberta_plugin.extensions.texts.glue import TASKS
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.submission import find_leaderboard
from roberta_plugin.finetuning.benchmarks.submission import write_submission as write_for
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.options import GlueOptions
from tests.tiny_benchmarks import prepared_of
from tests.tiny_glue import write_task

GLUE = find_leaderboard("glue")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    found = {}
    for task in ("SST-2", "STS-B", "QNLI-ranking", "WNLI"):
        raw = write_task(folder / task, task.removesuffix("-ranking"), train=41, dev=30, test=12)
        found[task] = prepared_of(task, raw, folder / "sets" / task)
    return found


def score(prepared, split, *members, folder=None):
    outputs = [RawOutputs(logits=np.array(scores, dtype=np.float32)) for scores in members]
    return benchmark_of(prepared.task).score(prepared, split, outputs, folder=folder, options=GlueOptions())


def noise(prepared, split, *, num_scores=1, seed=0):
    part = prepared.split(split)
    return np.random.default_rng(seed).normal(size=(len(part.sequences), num_scores))


def test_an_ensemble_averages_probabilities(prepared):
    one = prepared["SST-2"]
    labels = one.split("valid").columns["label"]
    sure = np.where(labels[:, None] == [0, 1], 3.0, -3.0)
    unsure = -sure / 10
    assert score(one, "valid", sure) == {"accuracy": 100.0}
    assert score(one, "valid", unsure) == {"accuracy": 0.0}
    assert score(one, "valid", unsure, sure, unsure) == {"accuracy": 100.0}
    members = [noise(one, "valid", num_scores=2, seed=seed) for seed in range(3)]
    mean = np.mean([np.exp(each) / np.exp(each).sum(axis=1, keepdims=True) for each in members], axis=0)
    assert score(one, "valid", *members)["accuracy"] == pytest.approx(100 * (mean.argmax(axis=1) == labels).mean())


def test_regression_averages_numbers(prepared):
    one = prepared["STS-B"]
    answers = one.split("valid").columns["label"]
    first, second = 2.5 + noise(one, "valid") / 3, 2.5 + noise(one, "valid", seed=1) / 3  # all within the limits
    found = score(one, "valid", first / 5, second / 5)
    assert found["pearson"] == pytest.approx(100 * metrics.pearson((first + second)[:, 0], answers), abs=0.1)
    assert found["pearson_spearman"] == pytest.approx((found["pearson"] + found["spearman"]) / 2)
    assert score(one, "valid", 0.1 * answers[:, None] + 0.2)["pearson"] == pytest.approx(100.0)


def test_the_correlations_are_those_of_the_numbers_in_the_file(prepared, tmp_path):
    one = prepared["STS-B"]
    answers = one.split("valid").columns["label"]
    raw = answers[:, None] + 2 * noise(one, "valid")
    found = score(one, "valid", raw / 5, folder=tmp_path)
    lines = (tmp_path / "STS-B.valid.tsv").read_text().splitlines()[1:]
    written = np.array([float(line.split("\t")[1]) for line in lines])
    expected, plain = (metrics.measure_numbers(answers, each, np.ones(len(answers))) for each in (written, raw[:, 0]))
    for name in ("pearson", "spearman"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9)
        assert abs(found[name] - plain[name]) > 0.01, "nothing was clipped"


def test_pairs_of_a_question_compete(prepared):
    one = prepared["QNLI-ranking"]
    part = one.split("valid")
    right = part.columns["answer"] == 0
    offsets = 5.0 * np.sin(part.columns["question"])  # the same for all sentences of a question: it must not matter
    assert score(one, "valid", (right + offsets)[:, None])["accuracy"] == 100.0
    assert score(one, "valid", (offsets - right)[:, None])["accuracy"] == 0.0
    assert right.sum() == 15


def test_a_phrase_must_beat_all_its_rivals(prepared):
    one = prepared["WNLI"]
    part = one.split("valid")
    labels = part.columns["label"]
    scores = np.zeros((len(part.sequences), 1))
    scores[part.offsets[:-1], 0] = np.where(labels == 1, 0.5, -0.5)
    assert score(one, "valid", scores)["accuracy"] == 100.0
    scores[part.offsets[:-1] + 1] = 0.6  # one rival is better: no phrase wins, and label 0 is right in half of the rows
    assert score(one, "valid", scores)["accuracy"] == pytest.approx(100 * (labels == 0).mean())
    assert (np.diff(part.offsets) > 2).any()


def test_the_diagnostic_set_is_scored_by_r3(tmp_path):
    raw = tmp_path / "MNLI"
    raw.mkdir()
    labels = ["entailment", "neutral", "contradiction", "neutral"]
    header = "index\tsentence1\tsentence2\tgold_label\n"
    for name in ("train", "dev_matched"):
        lines = "".join(f"{index}\tso {index}\tit\t{label}\n" for index, label in enumerate(labels))
        (raw / f"{name}.tsv").write_text(header + lines)
    lines = "".join(f"\t\t\t\tNews\tso\tit\t{label}\n" for label in labels)
    (raw / "diagnostic-full.tsv").write_text(
        "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel\n"
        + lines
    )
    prepared = prepared_of("MNLI", tmp_path, tmp_path / "set")
    scores = np.eye(3)[[2, 1, 0, 0]]
    found = score(prepared, "ax", scores, folder=tmp_path)
    counts = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    assert found["mcc"] == pytest.approx(100 * metrics.mcc(counts)) and found["accuracy"] == 75.0
    assert score(prepared, "valid", scores).keys() == {"accuracy"}
    assert (tmp_path / "AX.tsv").read_text().splitlines()[1] == "0\tentailment"


def test_the_paper_s_numbers_are_percentages():
    splits = [rows for task in TASKS.values() for rows in task.paper.values()]
    numbers = [value for rows in splits for row in rows.values() for value in row.values()]
    assert len(numbers) > 20 and all(60 < value < 100 and math.isfinite(value) for value in numbers)
    assert benchmark_of("RTE").paper["valid"]["RoBERTa large"] == {"accuracy": 86.6}
    mnli = {split: [row["accuracy"] for row in rows.values()] for split, rows in benchmark_of("MNLI").paper.items()}
    assert mnli == {"valid": [90.2, 87.6], "valid_mismatched": [90.2], "test": [90.8], "test_mismatched": [90.2]}


def test_numbers_stay_within_the_limits(prepared, tmp_path):
    outputs = np.array([[5.4], [2.34567], [-0.1]] * 4) / 5
    score(prepared["STS-B"], "test", outputs, folder=tmp_path)
    lines = (tmp_path / "STS-B.tsv").read_text().splitlines()[1:4]
    assert lines == ["0\t5.000", "1\t2.346", "2\t0.000"]


LEADERBOARD = dataclasses.replace(GLUE, files={name: 30 + number % 7 for name, number in GLUE.files.items()})
NAMES = {"CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"}


def write_submission(output, folders):
    return write_for(LEADERBOARD, output, folders)


def test_the_leaderboard_has_eleven_files():
    assert GLUE.files.keys() == {f"{name}.tsv" for name in NAMES}
    assert (GLUE.files["AX.tsv"], GLUE.files["RTE.tsv"], GLUE.files["QQP.tsv"]) == (1104, 3000, 390_965)


@pytest.fixture
def folder(tmp_path):
    """All files, each in a folder of its own."""
    for file, number in LEADERBOARD.files.items():
        path = tmp_path / "runs" / file.removesuffix(".tsv") / file
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(["index\tprediction", *(f"{index}\t0" for index in range(number))]) + "\n")
    return tmp_path / "runs"


def test_a_complete_submission_is_found_in_many_folders_and_always_the_same(folder, tmp_path):
    assert set(write_submission(tmp_path / "a.zip", [folder])) == {f"{name}.tsv" for name in NAMES}
    write_submission(tmp_path / "b.zip", [folder / name for name in NAMES])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert archive.read("WNLI.tsv") == (folder / "WNLI" / "WNLI.tsv").read_bytes()


def test_an_incomplete_submission_is_refused(folder, tmp_path):
    for name in ("AX", "QQP"):
        (folder / name / f"{name}.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"QQP\.tsv, AX\.tsv|AX\.tsv, QQP\.tsv"):
        write_submission(tmp_path / "a.zip", [folder])
    assert not (tmp_path / "a.zip").exists()


def test_files_of_the_wrong_length_or_form_are_refused(folder, tmp_path):
    path = folder / "RTE" / "RTE.tsv"
    for content, message in (
        ("index\tprediction\n0\tentailment\n", r"RTE\.tsv has 1 predictions, but the test set has 34 rows"),
        ("0\tentailment\n", r"RTE\.tsv, line 1: the header 'index\\tprediction' is missing"),
        ("", r"RTE\.tsv, line 1: the header"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            write_submission(tmp_path / "a.zip", [folder])


def test_a_folder_may_be_named_twice_a_file_may_not_and_the_zip_s_folder_is_made(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folder / "RTE")
    folders = [Path("runs"), folder, folder / "RTE", Path("link")]
    assert len(write_submission(tmp_path / "new" / "folder" / "a.zip", folders)) == 11
    assert (tmp_path / "new" / "folder" / "a.zip").is_file()
    for message, error, output, named in (
        (f"{tmp_path} is a folder: give the path of the zip", ValueError, tmp_path, [folder]),
        (r"There is no folder .*nowhere", FileNotFoundError, tmp_path / "a.zip", [folder, tmp_path / "nowhere"]),
    ):
        with pytest.raises(error, match=message):
            write_submission(output, named)
    (folder / "again").mkdir()
    (folder / "again" / "RTE.tsv").write_text("index\tprediction\n")
    with pytest.raises(ValueError, match="are both predictions for RTE"):
        write_submission(tmp_path / "a.zip", [folder])
