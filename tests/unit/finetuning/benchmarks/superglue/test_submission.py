"""Prediction files of SuperGLUE and the leaderboard's zip."""

import json
import zipfile

import pytest

from roberta_plugin.cli import main
from roberta_plugin.finetuning.benchmarks.submission import SUPERGLUE as LEADERBOARD
from roberta_plugin.finetuning.benchmarks.submission import write_submission

NAMES = {"BoolQ", "CB", "COPA", "MultiRC", "ReCoRD", "RTE", "WiC", "WSC", "AX-b", "AX-g"}


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
    assert sorted(found) == sorted(f"{name}.jsonl" for name in NAMES)
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
