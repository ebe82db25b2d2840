"""One of two ranks is killed, stopped or hangs: the other one ends in time, and its last line names it."""

import os
import signal
import socket
import time

import pytest

from roberta_plugin.fairseq_workarounds.heartbeats import EXIT_CODE, UPDATE_LIMITS, VARIABLE
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings
from tests.slurm_cluster import wait_for
from tests.tiny_corpus import environment, rank_commands, train_command

pytestmark = pytest.mark.integration

ENDLESS = ("--max-update", "1000000", "--total-num-update", "1000000", "--batch-size", "1", "--no-epoch-checkpoints")
LIMIT_S = 10


SLOW = """if True:
    import time
    import fairseq_cli.train
    from fairseq.trainer import Trainer

    train_step = Trainer.train_step

    def slowly(*given):
        time.sleep(0.05)
        return train_step(*given)

    Trainer.train_step = slowly
    fairseq_cli.train.cli_main()
"""  # which leaves the processor to others while heartbeats are waited for


def start_ranks(logs, program, arguments):
    """Start two ranks of a program that changes fairseq-train before it loads the plugin."""
    setting = {**environment(), VARIABLE: str(LIMIT_S)}
    commands = rank_commands(["python", "-c", program, *arguments], 2)
    return ForkedTrainings(commands, cwd=REPOSITORY, environment=setting, log=logs, fork_of="fairseq")


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        (signal.SIGKILL, 1),
        (signal.SIGSTOP, 0),  # and with it the store that holds the heartbeats
        pytest.param(signal.SIGKILL, 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.slow),
    ],
)
def test_the_other_rank_ends_in_time_and_names_it(tiny_data_bin, tmp_path, number, lost):
    logs = [tmp_path / f"{rank}.txt" for rank in range(2)]
    ranks = start_ranks(logs, SLOW, train_command(tiny_data_bin, tmp_path / "checkpoints", *ENDLESS)[1:])
    processes = ranks.processes
    try:
        wait_for(lambda: '"num_updates": "5"' in logs[0].read_text(), 120, "update 5")
        time.sleep(3)  # a few heartbeats
        os.kill(processes[lost].pid, number)
        begun = time.monotonic()
        code = processes[1 - lost].wait(timeout=120)
        seconds = time.monotonic() - begun
    finally:
        ranks.kill()
    output = logs[1 - lost].read_text()
    last = output.strip().splitlines()[-1]
    assert "LostRankError: Lost rank: " in last, output[-3000:]
    assert f"rank {lost} on {socket.gethostname()} (process {processes[lost].pid}) has sent no heartbeat" in last
    assert code == (1 if number == signal.SIGKILL else EXIT_CODE)
    assert seconds < LIMIT_S + 15, "on a busy machine too"


HANGS = """if True:
    import threading
    import fairseq_cli.train
    from fairseq.distributed import utils

    after_update = fairseq_cli.train.validate_and_save

    def hangs_here(cfg, trainer, *args):
        if utils.get_global_rank() == 1 and trainer.get_num_updates() == 8:
            threading.Event().wait()
        return after_update(cfg, trainer, *args)

    fairseq_cli.train.validate_and_save = hangs_here
    fairseq_cli.train.cli_main()
"""


@pytest.mark.slow
def test_ranks_that_live_and_make_no_progress_end_with_their_stacks(tiny_data_bin, tmp_path):
    """Rank 1 hangs between two updates; its thread goes on sending heartbeats."""
    logs = [tmp_path / f"{rank}.txt" for rank in range(2)]
    ranks = start_ranks(logs, HANGS, train_command(tiny_data_bin, tmp_path / "checkpoints", *ENDLESS)[1:])
    processes = ranks.processes
    try:
        wait_for(lambda: '"num_updates": "8"' in logs[0].read_text(), 120, "update 8")
        begun = time.monotonic()
        codes = [process.wait(timeout=120) for process in processes]
        seconds = time.monotonic() - begun
    finally:
        ranks.kill()
    said = [log.read_text() for log in logs]
    assert codes == [EXIT_CODE] * 2, said[1][-3000:]
    who = f"step 9 waits for rank 1 on {socket.gethostname()} (process {processes[1].pid}), which is updating"
    assert all(who in text.strip().splitlines()[-1] for text in said), said[0][-3000:]
    assert " in hangs_here\n" in said[1]
    assert "Stacks of all threads" in said[0]
    assert UPDATE_LIMITS * LIMIT_S - 3 < seconds < UPDATE_LIMITS * LIMIT_S + 20
