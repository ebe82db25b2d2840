"""Files of predictions and the leaderboard's zip."""

import dataclasses
import logging
import zipfile
from pathlib import Path

import pytest

from roberta_plugin.finetuning.benchmarks.submission import GLUE
from roberta_plugin.finetuning.benchmarks.submission import write_submission as write_for

LEADERBOARD = dataclasses.replace(GLUE, files={name: 30 + number % 7 for name, number in GLUE.files.items()})
NAMES = {"CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"}


def write_submission(output, folders, **options):
    return write_for(LEADERBOARD, output, folders, **options)


def test_the_leaderboard_has_eleven_files():
    assert GLUE.files.keys() == {f"{name}.tsv" for name in NAMES}
    assert (GLUE.files["AX.tsv"], GLUE.files["RTE.tsv"], GLUE.files["QQP.tsv"]) == (1104, 3000, 390_965)


def write_all(folder, *, without=()):
    for file, number in LEADERBOARD.files.items():
        name = file.removesuffix(".tsv")
        if name not in without:
            (folder / name).mkdir(parents=True)
            lines = [f"{index}\t0" for index in range(number)]
            (folder / name / file).write_text("\n".join(["index\tprediction", *lines]) + "\n")
    return folder


def test_a_complete_submission_is_found_in_many_folders_and_always_the_same(tmp_path):
    folder = write_all(tmp_path / "runs")
    assert set(write_submission(tmp_path / "a.zip", [folder])) == {f"{name}.tsv" for name in NAMES}
    write_submission(tmp_path / "b.zip", [folder / name for name in NAMES])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert archive.read("WNLI.tsv") == (folder / "WNLI" / "WNLI.tsv").read_bytes()


def test_an_incomplete_submission_is_refused_unless_asked_for(tmp_path, caplog):
    folder = write_all(tmp_path / "runs", without=("AX", "QQP"))
    with pytest.raises(FileNotFoundError, match=r"QQP\.tsv, AX\.tsv|AX\.tsv, QQP\.tsv"):
        write_submission(tmp_path / "a.zip", [folder])
    assert not (tmp_path / "a.zip").exists()
    with caplog.at_level(logging.WARNING):
        assert len(write_submission(tmp_path / "a.zip", [folder], allow_incomplete=True)) == 9
    assert "QQP.tsv is missing; AX.tsv is missing" in caplog.text
    with pytest.raises(FileNotFoundError):
        write_submission(tmp_path / "a.zip", [tmp_path / "nowhere"], allow_incomplete=True)


def test_files_of_the_wrong_length_or_form_are_refused(tmp_path, caplog):
    folder = write_all(tmp_path / "runs")
    path = folder / "RTE" / "RTE.tsv"
    path.write_text("index\tprediction\n0\tentailment\n")
    with pytest.raises(ValueError, match="has 1 predictions, and the test set has 34 rows"):
        write_submission(tmp_path / "a.zip", [folder])
    write_submission(tmp_path / "a.zip", [folder], allow_incomplete=True)
    assert "RTE.tsv has 1 predictions, and the test set has 34 rows" in caplog.text
    for content, message in (
        ("0\tentailment\n", r"line 1: .* is not the header"),
        ("index\tprediction\n0\tentailment\n\n1\tentailment\n", "line 3: '' is not an index and a prediction"),
        ("index\tprediction\n0\t\n", r"line 2: '0\\t' is not an index and a prediction"),
        ("index\tprediction\n0\ta\n0\tb\n", "line 3: the index 0 occurs in line 2 already"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=rf"RTE\.tsv, {message}"):
            write_submission(tmp_path / "a.zip", [folder], allow_incomplete=True)


def test_two_files_for_one_test_set_are_refused(tmp_path):
    folder = write_all(tmp_path / "runs")
    (folder / "again").mkdir()
    (folder / "again" / "RTE.tsv").write_text("index\tprediction\n")
    with pytest.raises(ValueError, match="are both predictions for RTE"):
        write_submission(tmp_path / "a.zip", [folder])


def test_a_folder_may_be_named_twice_and_the_zip_s_folder_is_made(tmp_path, monkeypatch):
    folder = write_all(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folder / "RTE")
    folders = [Path("runs"), folder, folder / "RTE", Path("link")]
    assert len(write_submission(tmp_path / "new" / "folder" / "a.zip", folders)) == 11
    assert (tmp_path / "new" / "folder" / "a.zip").is_file()


def test_paths_that_cannot_be_used_are_named(tmp_path):
    folder = write_all(tmp_path / "runs")
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder: give the path of the zip"):
        write_submission(tmp_path, [folder])
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere"):
        write_submission(tmp_path / "a.zip", [folder, tmp_path / "nowhere"])
