"""What fairseq-train starts from, at its first start and when the same command is given again."""

import os
import re
import signal

import pytest
import torch

from tests.integration.test_interrupt import Training
from tests.tiny_corpus import run, train_command

pytestmark = pytest.mark.integration
SHORT = ("--no-epoch-checkpoints", "--disable-validation", "--total-num-update", "1000")
RESETS = ("--reset-optimizer", "--reset-lr-scheduler", "--reset-dataloader", "--reset-meters")


@pytest.fixture(scope="module")
def old(tiny_data_bin, tmp_path_factory):
    """A save folder of a run of three updates."""
    save_dir = tmp_path_factory.mktemp("starts") / "old"
    done = run(train_command(tiny_data_bin, save_dir, *SHORT, "--max-update", "3"))
    assert done.returncode == 0, done.stderr[-3000:]
    return save_dir


def test_the_command_that_was_stopped_resumes_bit_for_bit_whatever_it_began_with(tiny_data_bin, old, tmp_path):
    options = (*SHORT, "--restore-file", str(old), *RESETS, "--no-save-optimizer-state")
    arguments = train_command(tiny_data_bin, tmp_path / "new", *options, "--max-update", "1000")
    training = Training(arguments, tmp_path / "first.txt", in_fork=True)
    try:
        training.wait_for_update(6)
        os.killpg(training.process.pid, signal.SIGTERM)
        assert training.wait() == 143, training.log()[-3000:]
    finally:
        training.kill()
    assert "the same command resumes from there" in training.log()
    stopped_at = max(training.updates())
    assert 6 <= stopped_at < 1000
    end = ("--max-update", str(stopped_at + 2))
    again, whole = (train_command(tiny_data_bin, tmp_path / name, *options, *end) for name in ("new", "whole"))
    done = run(again)
    assert done.returncode == 0, done.stderr[-3000:]
    own = tmp_path / "new" / "checkpoint_last.pt"
    assert (
        f"resuming from {own}; ignored after the first start: --restore-file {old}, {', '.join(RESETS)}. To"
        in done.stdout + done.stderr
    )
    assert f"Loaded checkpoint {own} (epoch" in done.stdout + done.stderr
    updates = [int(number) for number in re.findall(r'"num_updates": "(\d+)"', done.stdout)]
    assert min(updates) == stopped_at + 1
    assert run(whole).returncode == 0
    theirs, ours = (torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=True) for name in ("whole", "new"))
    assert theirs["model"].keys() == ours["model"].keys()
    assert all(torch.equal(ours["model"][name], value) for name, value in theirs["model"].items())


def test_no_training_begins_with_other_weights_than_those_that_are_named(tiny_data_bin, old, tmp_path):
    (tmp_path / "model").mkdir()
    given = ("--restore-file", str(tmp_path / "model"))
    done = run(train_command(tiny_data_bin, tmp_path / "new", *SHORT, "--max-update", "2", *given))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "is a folder without a checkpoint_last.pt" in done.stderr and not (tmp_path / "new").exists()
    start = ("--max-update", "1", "--finetune-from-model", str(old))
    done = run(train_command(tiny_data_bin, tmp_path / "new", *SHORT, *start))
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Loaded checkpoint {old}/checkpoint_last.pt" in done.stdout
