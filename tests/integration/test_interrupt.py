"""Ctrl-C, SIGTERM, a second start in the same folder and a start after the end, with the real fairseq-train."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings
from tests.slurm_cluster import wait_for
from tests.tiny_corpus import environment, logged, rank_commands, run, train_command

pytestmark = pytest.mark.integration

ENDLESS = ("--max-update", "100000", "--total-num-update", "100000", "--batch-size", "1", "--no-epoch-checkpoints")


class Training:
    """A command in a session of its own, as in a terminal, with its output in a file."""

    def __init__(self, arguments, log, *, in_fork=False):
        self.path = log
        if in_fork:
            forked = ForkedTrainings([arguments], cwd=REPOSITORY, environment=environment(), log=log)
            self.process = forked.processes[0]
            return
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                arguments, cwd=REPOSITORY, env=environment(), stdout=file, stderr=file, start_new_session=True
            )

    def log(self):
        return self.path.read_text(errors="replace")

    def updates(self):
        return [int(number) for number in re.findall(r'"num_updates": "(\d+)"', self.log())]

    def wait_for_update(self, number):
        def is_there():
            assert self.process.poll() is None, self.log()[-3000:]
            return max(self.updates(), default=0) >= number

        wait_for(is_there, 120, f"update {number}")

    def press_ctrl_c(self):
        """The terminal sends the signal to all processes, data-loader workers included."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self):
        try:
            return self.process.wait(timeout=120)
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=60)


def saved_updates(save_dir):
    state = torch.load(save_dir / "checkpoint_last.pt", weights_only=True)
    return state["optimizer_history"][-1]["num_updates"]


def test_ctrl_c_saves_and_a_finished_training_is_left_alone(tiny_data_bin, tmp_path):
    save_dir = tmp_path / "checkpoints"
    arguments = train_command(tiny_data_bin, save_dir, *ENDLESS)
    training = Training(arguments, tmp_path / "first.txt", in_fork=True)
    try:
        training.wait_for_update(5)
        second = run(arguments)
        assert second.returncode == 2
        assert f"Another training (process {training.process.pid} on" in second.stderr
        assert "use another --save-dir" in second.stderr
        training.press_ctrl_c()
        assert training.wait() == 130, training.log()[-3000:]
    finally:
        training.kill()
    stopped_at = max(training.updates())
    assert saved_updates(save_dir) == stopped_at < 100000
    assert (
        f"Stopped by SIGINT after update {stopped_at}, which is saved in {save_dir}/checkpoint_last.pt"
        in training.log()
    )
    assert "Traceback" not in training.log()

    arguments[arguments.index("--max-update") + 1] = str(stopped_at)
    assert run(arguments).returncode == 0  # what the last update ends with: its validation, and its checkpoint
    before = {path.name: path.stat().st_mtime_ns for path in save_dir.glob("*.pt")}
    again = run(arguments)
    assert again.returncode == 0, again.stderr[-3000:]
    assert f"has {stopped_at} updates, and --max-update is {stopped_at}. Nothing to do" in again.stdout
    assert max(int(record["num_updates"]) for record in logged(save_dir, "train_inner")) == stopped_at
    assert {path.name: path.stat().st_mtime_ns for path in save_dir.glob("*.pt")} == before


def test_sigterm_to_one_rank_stops_both_after_the_same_update(tiny_data_bin, tmp_path):
    save_dir = tmp_path / "checkpoints"
    commands = rank_commands(train_command(tiny_data_bin, save_dir, *ENDLESS), 2)
    ranks = [Training(command, tmp_path / f"{rank}.txt", in_fork=True) for rank, command in enumerate(commands)]
    try:
        ranks[0].wait_for_update(5)
        ranks[1].process.terminate()
        assert [rank.wait() for rank in ranks] == [143, 143], ranks[0].log()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
    stopped_at = max(ranks[0].updates())
    assert saved_updates(save_dir) == stopped_at
    assert f"Stopped by a signal to another rank after update {stopped_at}" in ranks[0].log()
    assert "Traceback" not in ranks[0].log() + ranks[1].log()


SPAWN = """
    import sys
    import torch
    torch.cuda.device_count = lambda: 2
    from fairseq_cli.train import cli_main
    if __name__ == "__main__":
        cli_main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_process_that_starts_the_ranks_passes_signals_on(tiny_data_bin, tmp_path, number, code):
    """As with several GPUs in one machine, which are made up here."""
    (tmp_path / "program.py").write_text(textwrap.dedent(SPAWN))
    save_dir = tmp_path / "checkpoints"
    arguments = [sys.executable, str(tmp_path / "program.py"), *train_command(tiny_data_bin, save_dir, *ENDLESS)[1:]]
    arguments += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-world-size", "2"]
    training = Training(arguments, tmp_path / "log.txt")
    try:
        training.wait_for_update(5)
        if number == signal.SIGTERM:
            training.process.terminate()
        else:  # a terminal sends it to all processes
            os.killpg(training.process.pid, number)
        assert training.wait() == code, training.log()[-3000:]
    finally:
        training.kill()
    assert "distributed_world_size': 2" in training.log()
    assert saved_updates(save_dir) == max(training.updates())
    # SIGHUP also ends Python's own resource tracker, whose successor complains about semaphores that it does not know
    assert "Traceback" not in training.log().partition("resource_tracker.py")[0]
