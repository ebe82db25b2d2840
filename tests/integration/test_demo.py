"""`roberta demo` with a few seconds of training: killed in the middle, resumed, and run again when all is done."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY
from tests.tiny_corpus import environment

pytestmark = pytest.mark.integration

STEPS = ("corpus", "vocabulary", "binarize", "plan", "pretrain", "evaluation", "report")


def demo_command(folder, *options):
    small = ("--minutes", "0.15", "--max-megabytes", "1", "--vocab-size", "1000")
    return [sys.executable, "-m", "roberta_plugin.cli", "demo", "--output-dir", str(folder), *small, *options]


def run_demo(folder, elsewhere, *options):
    return subprocess.run(
        demo_command(folder, *options),
        cwd=elsewhere,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def kill_in_training(folder, elsewhere):
    """Start the demo, and kill -9 it, not its child, once the training has saved a checkpoint."""
    process = subprocess.Popen(
        demo_command(folder), cwd=elsewhere, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    try:
        while not (folder / "checkpoints" / "checkpoint_last.pt").exists():
            assert process.poll() is None, "the demo ended before it could be killed"
            assert time.monotonic() < deadline, "there was no checkpoint in time"
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "run"


@pytest.fixture(scope="module")
def resumed(folder, tmp_path_factory):
    """What the second run printed, after the first was killed; and the steps that were done before it."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")  # any folder will do: nothing may depend on it
    kill_in_training(folder, elsewhere)
    before = json.loads((folder / "steps.json").read_text())
    done = run_demo(folder, elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(elsewhere.iterdir())
    return done, before


def test_a_killed_demo_goes_on_in_the_training_with_the_same_plan(folder, resumed):
    done, before = resumed
    assert tuple(before) == STEPS[:4], "the demo was not killed in its training"
    after = json.loads((folder / "steps.json").read_text())
    assert {step: after[step] for step in before} == before
    for step in STEPS[:4]:
        assert f"] {step}:" not in done.stdout, f"{step} was done again"
    for step in STEPS[4:]:
        assert f"] {step}:" in done.stdout, f"{step} was not done"
    assert after["pretrain"]["result"]["num_updates"] > 0
    log = (folder / "train.log").read_text()
    assert "Loaded checkpoint" in log


def test_the_report_is_complete(folder, resumed):
    done, _ = resumed
    facts = json.loads((folder / "report.json").read_text())
    evaluation = facts["evaluation"]
    assert evaluation["num_predictions"] > 1000
    assert 0 < evaluation["unigram"]["accuracy"] < 15
    assert evaluation["model"]["perplexity"] < facts["vocabulary"]["size"]
    assert facts["loss_in_bits"]["train"]["updates"]
    assert facts["num_resumed"] == 1
    assert 2 ** facts["loss_in_bits"]["valid"]["values"][-1] < facts["vocabulary"]["size"]
    assert facts["tokens_per_second"] > 0
    assert len(evaluation["answers"]) > 3
    assert all(len(answer["words"]) == 5 for answer in evaluation["answers"])
    report = (folder / "report.md").read_text()
    assert f"{evaluation['model']['accuracy']:.1f} %" in report
    assert f"{evaluation['model']['accuracy']:.1f} %" in done.stdout
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_demo_shows_its_results_and_does_nothing_again(folder, resumed, tmp_path):
    done, _ = resumed
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    again = run_demo(folder, tmp_path)
    assert again.returncode == 0, again.stderr
    assert files == {path: path.stat().st_mtime_ns for path in files}
    assert again.stdout.count("done before") == len(STEPS)
    start = "Held-out sentences"
    assert again.stdout[again.stdout.index(start) :] == done.stdout[done.stdout.index(start) :]


def test_a_failing_training_is_one_message_with_the_end_of_the_log(folder, resumed, tmp_path):
    """With other settings the demo plans anew, and here it cannot."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "steps.json").write_text((folder / "steps.json").read_text())  # the steps, but not their files
    failed = run_demo(copy, tmp_path, "--seed", "2")
    assert failed.returncode == 2
    assert "fairseq-train failed" in failed.stderr
    assert "speed.log" in failed.stderr
    assert "data-bin" in failed.stderr
    assert f"File {str(REPOSITORY / 'roberta_plugin' / 'cli')!r}" not in failed.stderr
