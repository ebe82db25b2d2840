"""Two gloo ranks that are told to stop, without SLURM: no update is lost and none is repeated, to the last bit."""

import dataclasses
import os
import re
import signal
import subprocess

import cloudpickle
import pytest
import torch

from roberta_plugin.launch import run_folder
from roberta_plugin.launch.job import TrainingJob
from roberta_plugin.launch.recipe import LaunchSettings, complete
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings
from tests.slurm_cluster import free_ports, wait_for
from tests.tiny_corpus import environment, launched_words

pytestmark = pytest.mark.integration

UPDATES = 50
START = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))())"


@pytest.fixture(scope="module")
def recipe(tiny_data_bin, tmp_path_factory):
    words = launched_words(tiny_data_bin)
    words += ["--max-update", str(UPDATES), "--total-num-update", str(UPDATES), "--disable-validation"]
    words += ["--no-epoch-checkpoints", "--keep-interval-updates", "2", "--bf16"]  # fp32: test_pretrain
    words += ["--num-workers", "1", "--data-buffer-size", "0"]  # no batches ahead: the death of a worker shows at once
    return LaunchSettings(
        output_dir=tmp_path_factory.mktemp("runs") / "uninterrupted",
        train=tuple(words),
        gpus_per_node=2,
        batch_sequences=8,
    )


class Ranks:
    """Both ranks of one attempt, started as srun would start them."""

    def __init__(self, recipe):
        self.output_dir = recipe.output_dir
        recipe.save_dir.mkdir(parents=True, exist_ok=True)
        recipe = dataclasses.replace(recipe, port=free_ports(1)[0])
        pickled = recipe.output_dir / "job.pkl"
        pickled.write_bytes(cloudpickle.dumps(TrainingJob(recipe=recipe, arguments=complete(recipe))))
        self.attempt = len(list(recipe.output_dir.glob("0_*.log")))
        command = ["python", "-c", START, str(pickled)]
        self.processes = ForkedTrainings(
            [command, command],
            cwd=REPOSITORY,
            environment=[self._variables(rank) for rank in range(2)],
            log=[self._log_file(rank) for rank in range(2)],
        ).processes

    def _variables(self, rank):
        values = {"SLURM_JOB_ID": "7", "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0}
        values |= {
            "SLURM_NTASKS": 2,
            "SLURM_JOB_NODELIST": "localhost",
            "SLURMD_NODENAME": "localhost",
            "SLURM_RESTART_COUNT": self.attempt,
        }
        return {**environment(), **{name: str(value) for name, value in values.items()}}

    def _log_file(self, rank):
        return self.output_dir / f"{rank}_{self.attempt}.log"

    def log(self, rank=0):
        return self._log_file(rank).read_text(errors="replace")

    def updates(self):
        return [int(number) for number in re.findall(r'train_inner \| .*"num_updates": "(\d+)"', self.log())]

    def wait_for_update(self, update):
        def is_there():
            assert all(process.poll() is None for process in self.processes), self.log()[-3000:]
            return (self.updates() or [0])[-1] >= update

        wait_for(is_there, 120, f"update {update}", longest_pause=0.02)

    def wait(self):
        try:
            return [process.wait(timeout=180) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()


@pytest.fixture(scope="module")
def uninterrupted(recipe):
    ranks = Ranks(recipe)
    assert ranks.wait() == [0, 0], ranks.log()[-3000:]
    assert "rank 0 of world size 2 on localhost" in ranks.log(0)
    assert "rank 1 of world size 2 on localhost" in ranks.log(1)
    assert ranks.updates() == list(range(1, UPDATES + 1))
    return final_parameters(recipe)


def final_parameters(recipe):
    state = torch.load(recipe.save_dir / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == UPDATES
    return state["model"]


@pytest.mark.parametrize("number", [signal.SIGUSR2, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_to_one_rank_stops_both_after_the_update(recipe, uninterrupted, tmp_path, number):
    """One rank and its data-loader worker get the signal; both ranks save and stop; the next start goes on."""
    recipe = dataclasses.replace(recipe, output_dir=tmp_path / "run", checkpoint_minutes=0.002)
    first = Ranks(recipe)
    first.wait_for_update(12)
    for pid in [*children_of(first.processes[1].pid), first.processes[1].pid]:
        os.kill(pid, number)
    codes = first.wait()
    assert codes == [0, 0], first.log()[-3000:]
    stopped_at = first.updates()[-1]
    assert stopped_at < UPDATES
    assert f"stopped by another rank after update {stopped_at}: saving" in first.log()
    last = run_folder.read_status(recipe.output_dir)
    assert (last.phase, last.update) == ("stopped", stopped_at)
    by_the_clock = list(recipe.save_dir.glob("checkpoint_*_*.pt"))
    assert 0 < len(by_the_clock) <= 2

    second = Ranks(recipe)
    assert second.wait() == [0, 0], second.log()[-3000:]
    assert f"resuming from checkpoint_last.pt, update {stopped_at}" in second.log()
    assert first.updates() + second.updates() == list(range(1, UPDATES + 1))
    found = final_parameters(recipe)
    assert found.keys() == uninterrupted.keys()
    assert all(torch.equal(found[name], uninterrupted[name]) for name in found)
    assert run_folder.read_status(recipe.output_dir).phase == "finished"


def test_a_finished_job_that_starts_again_does_nothing(recipe, uninterrupted):
    last = recipe.save_dir / "checkpoint_last.pt"
    before = last.stat().st_mtime_ns
    again = Ranks(recipe)
    assert again.wait() == [0, 0], again.log()[-3000:]
    assert again.updates() == []
    assert f"--max-update is {UPDATES}. Nothing to do" in again.log()
    assert last.stat().st_mtime_ns == before
    found = run_folder.read_status(recipe.output_dir)
    assert (found.phase, found.update, found.max_update) == ("finished", UPDATES, UPDATES)


def children_of(pid):
    """The processes that a process has started: its data-loader workers."""
    text = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True).stdout
    assert text.split(), "there is no data-loader worker: the test shows less than it says"
    return [int(word) for word in text.split()]
