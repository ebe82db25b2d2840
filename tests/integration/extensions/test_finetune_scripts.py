"""examples/finetune/*.sh, run as people run them: from another folder, with official files of a small size."""

import shlex
from pathlib import Path

import pytest
import torch

from roberta_plugin.extensions.texts.glue import TASKS
from roberta_plugin.finetuning.benchmarks.submission import find_leaderboard
from tests.conftest import REPOSITORY
from tests.shell import shell
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_glue import write_official
from tests.tiny_race import write_race
from tests.tiny_squad import write_raw

LEADERBOARD = find_leaderboard("glue")

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OPTIONS = "--seeds 1 --epochs 1 --only lr=1.5e-5 --set cpu=true --set num-workers=0 --parallel 2"


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    """A folder with a tokenizer and a pretrained model."""
    folder = tmp_path_factory.mktemp("start")
    write_tokenizer(folder / "tokenizer")
    torch.save(state_of(folder / "tokenizer", encoder_layers=1, max_positions=512), folder / "model.pt")
    return folder


def run(script: str, raw: Path, start: Path, folder: Path, options: str = OPTIONS) -> Path:
    """Run one of the scripts in `folder`; the folder of its runs."""
    words = [str(REPOSITORY / "examples" / "finetune" / script), raw, start / "tokenizer", start / "model.pt", "runs"]
    shell(f"{shlex.join(map(str, words))} {options}", folder)
    return folder / "runs"


def test_the_glue_script_fine_tunes_every_task_and_zips_only_whole_test_sets(start, tmp_path):
    options = OPTIONS.replace("lr=1.5e-5", "lr=1e-5 --only batch=16")
    with pytest.raises(AssertionError, match="1,063 rows"):  # the leaderboard's rows of CoLA, of which there are 6 here
        run("glue.sh", write_official(tmp_path / "glue"), start, tmp_path, options)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {*TASKS, "results"}
    assert {path.name for path in (tmp_path / "runs").glob("*/results/*.tsv")} >= {*LEADERBOARD.files}


def test_the_squad_script_fine_tunes_both_versions(start, tmp_path):
    for task in ("squad1", "squad2"):
        write_raw(tmp_path / "squad", task=task)
    runs = run("squad.sh", tmp_path / "squad", start, tmp_path)
    table = (runs / "results" / "results.md").read_text()
    assert "squad1" in table
    assert "squad2" in table


def test_the_race_script_fine_tunes(start, tmp_path):
    runs = run(
        "race.sh", write_race(tmp_path / "race", train=8, dev=4), start, tmp_path, OPTIONS.replace("1.5e-5", "1e-5")
    )
    assert list(runs.glob("race/runs/*/seed-1/checkpoints/checkpoint_best.pt"))
