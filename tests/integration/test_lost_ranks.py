"""One of two ranks is killed or stopped: the other one ends in time, and its last line names it."""

import os
import signal
import socket
import subprocess
import time

import pytest

from roberta_plugin.fairseq_workarounds.lost_ranks import EXIT_CODE, VARIABLE
from tests.conftest import REPOSITORY
from tests.slurm_cluster import free_ports, wait_for
from tests.tiny_corpus import environment, train_command

pytestmark = pytest.mark.integration

ENDLESS = ("--max-update", "1000000", "--total-num-update", "1000000", "--batch-size", "1", "--no-epoch-checkpoints")
LIMIT_S = 10


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        (signal.SIGKILL, 1),
        (signal.SIGSTOP, 0),  # and with it the store that holds the signs of life
        pytest.param(signal.SIGKILL, 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.slow),
    ],
)
def test_the_other_rank_ends_in_time_and_names_it(tiny_data_bin, tmp_path, number, lost):
    place = ["--distributed-init-method", f"tcp://127.0.0.1:{free_ports(1)[0]}", "--distributed-no-spawn"]
    place += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-world-size", "2"]
    arguments = [*train_command(tiny_data_bin, tmp_path / "checkpoints", *ENDLESS), *place]
    logs = [tmp_path / f"{rank}.txt" for rank in range(2)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as file:
                words = [*arguments, "--distributed-rank", str(rank)]
                setting = {**environment(), VARIABLE: str(LIMIT_S)}
                processes.append(subprocess.Popen(words, cwd=REPOSITORY, env=setting, stdout=file, stderr=file))
        wait_for(lambda: '"num_updates": "5"' in logs[0].read_text(), 120, "update 5")
        time.sleep(3)  # a few signs of life
        os.kill(processes[lost].pid, number)
        begun = time.monotonic()
        code = processes[1 - lost].wait(timeout=120)
        seconds = time.monotonic() - begun
    finally:
        for process in processes:
            process.kill()
            process.wait()
    output = logs[1 - lost].read_text()
    last = output.strip().splitlines()[-1]
    assert "LostRankError: Lost rank: " in last, output[-3000:]
    assert f"rank {lost} on {socket.gethostname()} (process {processes[lost].pid}) has given no sign of life" in last
    assert code == (1 if number == signal.SIGKILL else EXIT_CODE)
    assert seconds < (15 if number == signal.SIGKILL else LIMIT_S + 15)
