"""`torchrun ... roberta train` on this machine: two ranks, and a rank that is lost for good."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from roberta_plugin.launch import run_folder
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings, forking
from tests.slurm_cluster import free_ports, wait_for
from tests.tiny_corpus import environment, launched_words

pytestmark = pytest.mark.integration
UPDATES = 200


def command(data_bin, output_dir, *options, updates):
    """`roberta train` of the tiny model, with 16 sequences an update."""
    ends = ("--max-update", str(updates), "--total-num-update", str(updates), "--no-epoch-checkpoints")
    words = launched_words(data_bin, *ends, *options)
    return ["roberta", "train", "--output-dir", str(output_dir), "--batch-sequences", "16", "--", *words]


def torchrun(*options):
    return [str(Path(sys.executable).with_name("torchrun")), *options, "--no-python"]


FORKED_RANK = (sys.executable, "-m", "tests.forked_rank")  # before a rank's command: it need not import everything


def start(words, log):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**forking(environment(), REPOSITORY), "PATH": path}
    with log.open("a") as file:  # as the forks do
        return subprocess.Popen(words, cwd=REPOSITORY, env=variables, stdout=file, stderr=file)


def run_ranks(words, number, log):
    """The ranks with the variables that torchrun sets; itself it is started by test_pretrain_ranks."""
    meeting = {"WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "MASTER_ADDR": "localhost"}
    meeting |= {"MASTER_PORT": free_ports(1)[0], "TORCHELASTIC_RUN_ID": "test"}
    places = [meeting | {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0} for rank in range(number)]
    variables = [environment() | {name: str(value) for name, value in place.items()} for place in places]
    ranks = ForkedTrainings([words] * number, cwd=REPOSITORY, environment=variables, log=log)
    try:
        assert ranks.codes(timeout=200) == [0] * number, log.read_text()[-4000:]
    finally:
        ranks.kill()


def end(process):
    """Kill torchrun and its ranks, which are in sessions of their own."""
    ranks = []
    with contextlib.suppress(FileNotFoundError):
        ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, ranks)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def updates_in(log):
    return [int(number) for number in re.findall(r'train_inner \| .*"num_updates": "(\d+)"', log.read_text())]


def test_two_ranks_train_together(tiny_data_bin, tmp_path):
    log = tmp_path / "log.txt"
    run_ranks(command(tiny_data_bin, tmp_path / "run", updates=12), 2, log)
    said = log.read_text()
    assert {int(rank) for rank in re.findall(r"rank (\d) of world size 2", said)} == {0, 1}
    assert updates_in(log) == list(range(1, 13))
    assert '"bsz": "16"' in said
    found = run_folder.read_status(tmp_path / "run")
    assert (found.phase, found.update) == ("finished", 12)
    state = torch.load(tmp_path / "run" / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 12


@pytest.mark.slow  # the agents wait for each other
def test_an_elastic_training_goes_on_without_a_machine_that_is_lost(tiny_data_bin, tmp_path):
    """Two agents of one rank each; one is killed with its rank, and the other goes on alone at the same batch."""
    port = free_ports(1)[0]
    options = ["--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-id", "test", "--rdzv-backend", "c10d"]
    options += ["--max-restarts", "3", "--rdzv-conf", "last_call_timeout=3,join_timeout=120"]
    words = command(tiny_data_bin, tmp_path / "run", "--save-interval-updates", "10", updates=UPDATES)
    logs = [tmp_path / "first.txt", tmp_path / "second.txt"]
    agents = []
    try:
        for log in logs:
            agents.append(start([*torchrun(*options, "--rdzv-endpoint", f"127.0.0.1:{port}"), *words], log))
            time.sleep(1.0)  # the first one serves the store
        wait_for(lambda: any(update >= 25 for log in logs for update in updates_in(log)), 200, "update 25")
        end(agents[1])
        assert agents[0].wait(timeout=300) == 0, logs[0].read_text()[-4000:]
    finally:
        for agent in agents:
            end(agent)
    said = logs[0].read_text()
    assert " of world size 2 on" in said
    assert "rank 0 of world size 1 on" in said
    after = said[said.index("rank 0 of world size 1 on") :]
    assert re.search(r"resuming from checkpoint_\w+.pt, update \d+", said)
    sizes = Counter(re.findall(r'train_inner \| .*"bsz": "(\d+)"', after))
    assert sizes.most_common(1)[0][0] == "16", "the recipe's batch; the last of an epoch is smaller"
    assert max(map(int, sizes)) == 16
    found = run_folder.read_status(tmp_path / "run")
    assert (found.phase, found.update) == ("finished", UPDATES)
