"""The real fairseq-train with --background-checkpoints: kills, signals and full disks while a checkpoint is written."""

import re
import textwrap

import pytest
import torch

from roberta_plugin.checkpoint_files import fault_of
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings
from tests.slurm_cluster import wait_for
from tests.tiny_corpus import environment, rank_commands, run, train_command

pytestmark = pytest.mark.integration

# The plugin, with writes that take as long as those of large models on a file server, or fail.
PLUGIN = """
    import os, resource, time
    import roberta_plugin
    roberta_plugin.register()
    from roberta_plugin.fairseq_workarounds import checkpoints
    checks, fault_of = [], checkpoints.fault_of
    def slow(path):
        checks.append(path)
        time.sleep({seconds})
        if len(checks) > {good}:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        return fault_of(path)
    checkpoints.fault_of = slow
"""
OPTIONS = ("--total-num-update", "100", "--batch-size", "16", "--save-interval-updates", "2")


@pytest.fixture
def training(tiny_data_bin, tmp_path):
    """Arguments of a training whose writes take some seconds each, and the first `good` of them succeed."""

    def arguments(save_dir, *options, seconds=0.0, good=1000):
        command = train_command(tiny_data_bin, tmp_path / save_dir, *OPTIONS, "--background-checkpoints", *options)
        folder = tmp_path / f"plugin_{seconds:g}_{good}".replace(".", "_")
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(textwrap.dedent(PLUGIN.format(seconds=seconds, good=good)))
        command[command.index("--user-dir") + 1] = str(folder)
        return command

    return arguments


class Running:
    """Trainings that run, and whose output grows in a file."""

    def __init__(self, commands, log):
        self.log = log
        self.all = ForkedTrainings(commands, cwd=REPOSITORY, environment=environment(), log=log)

    def wait_for_write(self, save_dir, update):
        """Wait until the checkpoint of an update is being written."""

        def is_written():
            assert self.all.codes() is None, self.log.read_text()[-3000:]
            return list(save_dir.glob(f".checkpoint_1_{update}.pt.*.tmp"))

        wait_for(is_written, 120, f"the checkpoint of update {update}")


def contents(folder):
    """What all checkpoints hold: tensors as lists of bits, and what does not depend on the clock."""
    found = {}
    for path in sorted(folder.glob("*.pt")):
        assert fault_of(path) is None
        state = torch.load(path, weights_only=True)
        extra = state["extra_state"]
        tensors, optimizer = [], state["last_optimizer_state"]
        for tensor in (*state["model"].values(), *optimizer.get("master_weights", ())):
            tensors.append(tensor.view(torch.int32).tolist())
        for moments in optimizer["state"].values():
            tensors += [moments[name].view(torch.int32).tolist() for name in ("exp_avg", "exp_avg_sq")]
        assert len(tensors) > 20
        updates = state["optimizer_history"][-1]["num_updates"]
        found[path.name] = (updates, [extra.get(key) for key in ("val_loss", "best", "train_iterator")], tensors)
    return found


def updates_in(path):
    assert fault_of(path) is None
    return torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"]


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_a_kill_during_a_write_loses_that_write_and_the_end_is_the_same(tiny_data_bin, training, tmp_path, precision):
    """Weights, masters, moments, places in the data, best and last two checkpoints, as of a run that waits for each."""
    options = ["--max-epoch", "2", "--keep-interval-updates", "2", *(["--bf16"] if precision == "bf16" else [])]
    whole = run(train_command(tiny_data_bin, tmp_path / "whole", *OPTIONS, *options))
    assert whole.returncode == 0, whole.stderr[-3000:]

    save_dir = tmp_path / "parts"
    running = Running([training("parts", *options, seconds=1.5)], tmp_path / "first.txt")
    try:
        running.wait_for_write(save_dir, 4)
    finally:
        running.all.kill()
    assert {path.name for path in save_dir.glob("*.pt")} == {
        f"checkpoint_{name}.pt" for name in ("1_2", "best", "last")
    }
    assert updates_in(save_dir / "checkpoint_last.pt") == 2
    (left,) = save_dir.glob(".*.tmp")

    done = run(training("parts", *options, seconds=0.1))  # each save waits for the one before
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Removed {left.name}" in done.stdout + done.stderr
    expected = contents(tmp_path / "whole")
    assert {"checkpoint2.pt", "checkpoint_best.pt", "checkpoint_last.pt"} < expected.keys()
    assert contents(save_dir) == expected
    assert not list(save_dir.glob(".*.tmp"))


def test_a_signal_during_a_write_saves_that_and_the_last_update_of_two_ranks(training, tmp_path):
    arguments = training("ranks", "--disable-validation", "--max-update", "1000", seconds=1.0)
    save_dir = tmp_path / "ranks"
    commands = rank_commands(arguments, 2)
    running = Running(commands, tmp_path / "log.txt")
    try:
        running.wait_for_write(save_dir, 2)
        running.all.processes[1].terminate()
        codes = running.all.codes(timeout=120)
    finally:
        running.all.kill()
    said = running.log.read_text()
    assert codes == [143, 143], said[-3000:]
    stopped_at = int(re.findall(r"Stopped by a signal to another rank after update (\d+)", said)[0])
    assert stopped_at >= 2
    assert updates_in(save_dir / "checkpoint_1_2.pt") == 2
    assert updates_in(save_dir / "checkpoint_last.pt") == stopped_at
    assert not list(save_dir.glob(".*.tmp"))
    assert "Traceback" not in said


def test_a_disk_that_fills_up_ends_the_training_with_the_error_and_the_last_good_checkpoint(training, tmp_path):
    arguments = training("full", "--max-update", "1000", "--disable-validation", "--keep-interval-updates", "1", good=0)
    save_dir = tmp_path / "full"
    done = run(arguments)
    assert done.returncode == 1, done.stdout[-3000:]
    last = done.stderr.strip().splitlines()[-1]
    assert f"The checkpoint {save_dir}/checkpoint_last.pt cannot be written: File too large" in last
    assert updates_in(save_dir / "checkpoint_1_2.pt") == 2
    assert sorted(path.name for path in save_dir.glob("*.pt")) == ["checkpoint_1_2.pt"]
    assert not list(save_dir.glob(".*.tmp"))
    made = [int(number) for number in re.findall(r'"num_updates": "(\d+)"', done.stdout)]
    assert max(made) < 1000


@pytest.mark.slow
def test_a_failure_of_the_last_write_is_the_end_of_the_training(training, tmp_path):
    """By the last update, and by the learning rate, which no function of fairseq's reports."""
    by_rate = ["--save-interval-updates", "0", "--warmup-updates", "0", "--stop-min-lr", "0.0029", "--max-update", "99"]
    for number, end in enumerate((["--max-update", "2"], by_rate)):
        arguments = training(f"end{number}", "--disable-validation", *end, good=0)
        done = run(arguments)
        assert done.returncode == 1, done.stdout[-3000:]
        assert "checkpoint_last.pt cannot be written: File too large" in done.stderr.strip().splitlines()[-1]
