"""`roberta demo` with a few seconds of training: killed in the middle, and resumed."""

import shutil

import pytest

from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings, run_forked
from tests.slurm_cluster import wait_for
from tests.tiny_corpus import command, environment

pytestmark = pytest.mark.integration


# The same command with a tenth of the docstrings: to parse all of them takes longer than the training.
PROGRAM = """
import itertools, sys
from roberta_plugin.pretraining import docstrings
documents = docstrings.documents
docstrings.documents = lambda: itertools.islice(documents(), 150)
from roberta_plugin.cli import main
sys.exit(main(sys.argv[1:]))
"""


def words(folder):
    return ["demo", "--output-dir", str(folder), "--updates", "20"]


def run_demo(folder, elsewhere):
    return run_forked([*command("roberta"), *words(folder)], cwd=elsewhere, environment=environment(), timeout=300)


def kill_in_training(folder, elsewhere):
    """Start the demo, and kill -9 it, not its child, once the training has saved a checkpoint."""
    command = ["python", "-c", PROGRAM, *words(folder)]
    (process,) = ForkedTrainings([command], cwd=elsewhere, environment=environment()).processes

    def is_saved():
        assert process.poll() is None, "the demo ended before it could be killed"
        return (folder / "checkpoints" / "checkpoint_last.pt").exists()

    try:
        wait_for(is_saved, 240, "a checkpoint", longest_pause=0.02)
    finally:
        process.kill()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "run"


@pytest.fixture(scope="module")
def resumed(folder, tmp_path_factory):
    """What the second run printed, after the first was killed; and the files that were finished before it."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")  # any folder will do: nothing may depend on it
    kill_in_training(folder, elsewhere)
    before = made(folder)
    done = run_demo(folder, elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(elsewhere.iterdir())
    return done, before


def made(folder):
    """When text, tokenizer and binary files were written."""
    paths = [*folder.glob("corpus/*"), *folder.glob("tokenizer/*.*"), *folder.glob("data-bin/*.bin")]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_a_killed_demo_goes_on_in_the_training(folder, resumed):
    _, before = resumed
    assert before and made(folder) == before
    assert "Loaded checkpoint" in (folder / "train.log").read_text()


def test_masks_scores_and_curve_are_reported(folder, resumed):
    done, _ = resumed
    assert done.stdout.count("(true: ") == 8
    summary = done.stdout[done.stdout.index("On held-out text") :].splitlines()[0]
    assert summary in (folder / "report.md").read_text()
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_failing_training_is_one_message_with_the_end_of_the_log(folder, resumed, tmp_path):
    copy = tmp_path / "copy"
    for name in ("corpus", "tokenizer", "data-bin"):
        shutil.copytree(folder / name, copy / name)
    (copy / "text.json").write_text((folder / "text.json").read_text().replace(str(folder), str(copy)))
    (copy / "checkpoints").write_text("no folder")
    failed = run_demo(copy, tmp_path)
    assert failed.returncode == 2
    assert "fairseq-train failed" in failed.stderr and "train.log" in failed.stderr
    assert f"File {str(REPOSITORY / 'roberta_plugin' / 'cli')!r}" not in failed.stderr
