"""The restart policy on a real SLURM: crash loops end, starts that are killed do not end a run, salloc, typed GPUs."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from roberta_plugin.launch import run_folder
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.submission import launch
from tests.integration.test_slurm import (
    UPDATES,
    log_of,
    recipe_of,
    updates_done,
    wait_for_end,
    wait_for_restart,
    wait_for_update,
)
from tests.slurm_cluster import environment_of_jobs, needs_slurm, parent_of, slurm_cluster, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slurm, needs_slurm]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), num_nodes=3, gpu_type="h100") as cluster:
        yield cluster


environment = pytest.fixture(environment_of_jobs, autouse=True)


def on_one_node(data_bin, output_dir, **fields):
    return recipe_of(data_bin, output_dir, nodes=1, **{"gpus_per_node": 1, "batch_sequences": 8, **fields})


@pytest.mark.slow  # three attempts
def test_a_crash_loop_without_a_checkpoint_ends_after_three_attempts(cluster, tiny_data_bin, tmp_path):
    """A misspelt metric: fails at the first validation, before anything was saved."""
    output_dir = tmp_path / "run"
    options = ("--best-checkpoint-metric", "foo", "--validate-interval-updates", "5", "--save-interval-updates", "1000")
    recipe = on_one_node(tiny_data_bin, output_dir, options=options)
    train = [word for word in recipe.train if word != "--disable-validation"]
    job_id = launch(type(recipe)(**{**vars(recipe), "train": tuple(train)})).job_id
    for attempt in (1, 2):
        wait_for_restart(cluster, job_id, attempt)
    wait_for_end(cluster, output_dir, job_id, "FAILED")
    assert cluster.fields(job_id)["Restarts"] == "2"
    assert "3 attempts in a row have failed without saving a newer checkpoint" in log_of(output_dir, job_id)
    records = read_attempts(output_dir)
    assert [(record["kind"], record["restarts"]) for record in records] == [
        ("failed in training", True),
        ("failed in training", True),
        ("failed in training", False),
    ]
    assert all("KeyError: 'foo'" in record["reason"] for record in records)


def stopped_run(cluster, data_bin, output_dir, **fields):
    """A job of two nodes that has saved a checkpoint and is back in its second attempt; and the update it stopped at."""
    recipe = recipe_of(data_bin, output_dir, nodes=2, gpus_per_node=1, batch_sequences=8, **fields)
    job_id = launch(recipe).job_id
    wait_for_update(cluster, output_dir, job_id, 25)
    cluster.call("scancel", "--signal=USR2", job_id)
    wait_for_restart(cluster, job_id, 1)
    wait_for(lambda: cluster.has_rank(job_id, 1), 60, "rank 1")
    return job_id, updates_done(output_dir, job_id)[-1]


@pytest.mark.slow
def test_a_restarted_job_that_is_killed_while_starting_goes_on(cluster, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    job_id, before = stopped_run(cluster, tiny_data_bin, output_dir)
    os.kill(cluster.pid_of_rank(job_id, 1), signal.SIGKILL)  # while it imports
    wait_for_restart(cluster, job_id, 2)
    wait_for_end(cluster, output_dir, job_id)
    kinds = [(record["kind"], record["restarts"]) for record in read_attempts(output_dir)]
    assert kinds == [("stopped", True), ("failed while starting", True), ("finished", False)]
    assert re.match(
        r"exit code 1(37|43) ", read_attempts(output_dir)[1]["reason"]
    )  # of the rank, or of those it took along
    assert updates_done(output_dir, job_id)[: before + 1] == list(range(1, before + 2))


@pytest.mark.slow  # the pre-flight's patience
def test_a_node_that_hangs_while_a_job_restarts_is_left_out(cluster, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    job_id, _ = stopped_run(cluster, tiny_data_bin, output_dir, preflight_seconds=25)
    hung = cluster.pid_of_rank(job_id, 1)
    node = _environment_of(hung)["SLURMD_NODENAME"]
    os.kill(hung, signal.SIGSTOP)
    wait_for(lambda: len(read_attempts(output_dir)) == 2, 90, "the verdict of the pre-flight")
    with contextlib.suppress(ProcessLookupError):
        os.kill(hung, signal.SIGKILL)
    wait_for(lambda: cluster.fields(job_id)["ExcNodeList"] == node, 30, "the node's exclusion")
    wait_for_restart(cluster, job_id, 2)
    wait_for_end(cluster, output_dir, job_id)
    silent = read_attempts(output_dir)[1]
    assert f"node {node}: rank 1: did not start within 25 s" in silent["reason"]
    assert silent["excluded"] == [node]
    assert f"of world size 2 on {node}\n" not in log_of(output_dir, job_id, 1).rpartition("rank 1 of")[2]
    assert run_folder.read_status(output_dir).phase == "finished"


@pytest.mark.slow
def test_a_rank_that_hangs_in_training_ends_the_attempt_and_its_node_is_left_out(cluster, tiny_data_bin, tmp_path):
    """Ten seconds without a heartbeat; then the job restarts on the node that was left."""
    output_dir = tmp_path / "run"
    recipe = recipe_of(
        tiny_data_bin, output_dir, nodes=2, gpus_per_node=1, batch_sequences=8, env=("ROBERTA_LOST_RANK_SECONDS=10",)
    )
    job_id = launch(recipe).job_id
    wait_for_update(cluster, output_dir, job_id, 25)
    hung = cluster.pid_of_rank(job_id, 1)
    node = _environment_of(hung)["SLURMD_NODENAME"]
    os.kill(hung, signal.SIGSTOP)
    wait_for(lambda: read_attempts(output_dir), 90, "the end of the attempt")
    with contextlib.suppress(ProcessLookupError):
        os.kill(hung, signal.SIGKILL)
    wait_for(lambda: cluster.fields(job_id)["ExcNodeList"] == node, 30, "the node's exclusion")
    (lost,) = read_attempts(output_dir)
    assert (lost["kind"], lost["restarts"], lost["excluded"]) == ("failed in training", True, [node])
    assert f"rank 1 on {node} (process {hung}) has sent no heartbeat for 1" in lost["reason"]
    assert "Stacks of all threads" in log_of(output_dir, job_id)
    wait_for_restart(cluster, job_id, 1)
    wait_for_end(cluster, output_dir, job_id)
    assert f"rank 1 of world size 2 on {node}\n" not in log_of(output_dir, job_id, 1).partition("rank 1 of")[2]
    assert updates_done(output_dir, job_id)[-1] == UPDATES
    assert "| state | finished |" in (output_dir / "report.md").read_text()
    assert len(list((output_dir / "logs").glob(f"{job_id}_*"))) <= 2 + 3, "two logs, and the first rank's result"


def _environment_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        words = file.read().decode(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.mark.slow
def test_a_job_ends_although_a_step_daemon_has_died(cluster, tiny_data_bin, tmp_path):
    """The daemon's rank trains on, but srun never hears of its end: it waits for it, and the nodes are free soon."""
    output_dir = tmp_path / "run"
    recipe = recipe_of(tiny_data_bin, output_dir, nodes=2, gpus_per_node=1, batch_sequences=8)
    job_id = launch(recipe).job_id
    wait_for_update(cluster, output_dir, job_id, 25)
    os.kill(parent_of(cluster.pid_of_rank(job_id, 1)), signal.SIGKILL)
    wait_for_end(cluster, output_dir, job_id)
    assert time.time() - (output_dir / "report.md").stat().st_mtime < 60, "the last that rank 0 writes"
    assert updates_done(output_dir, job_id) == list(range(1, UPDATES + 1))
    (record,) = read_attempts(output_dir)
    assert record["kind"] == "finished"


def test_a_launch_from_within_another_job_takes_nothing_over_and_gpus_may_have_a_type(cluster, tiny_data_bin, tmp_path):
    """`roberta launch` in salloc; it is the submission that counts, so the job does not begin."""
    output_dir = tmp_path / "run"
    train = shlex.join(word for word in on_one_node(tiny_data_bin, output_dir).train if word != "--cpu")
    launch = f"{sys.executable} -m roberta_plugin.cli launch --output-dir {output_dir} --gpus-per-node h100:2 --cpus-per-gpu 1"
    launch += f" --time 5 --sbatch exclusive --sbatch begin=now+1hour --env TOKEN=secret -- {train}"
    words = ["salloc", "--gpus-per-node=h100:1", "--ntasks=1", "--cpus-per-task=2", "bash", "-c", launch]
    done = subprocess.run(words, env={**os.environ}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    job_id = re.search(r"job (\d+): logs in", done.stdout)[1]
    fields = cluster.fields(job_id)
    assert fields["TresPerNode"] == "gres:gpu:h100:2"
    assert (fields["NumTasks"], fields["CPUs/Task"], fields["OverSubscribe"]) == ("2", "1", "NO")
    cluster.call("scancel", job_id)


@pytest.mark.slow  # scontrol itself takes minutes to give up
def test_a_controller_that_is_down_and_a_signal_to_the_batch_shell_end_nothing(cluster, tiny_data_bin, tmp_path):
    """A rank dies while nobody answers: the batch script asks until somebody does."""
    output_dir = tmp_path / "run"
    job_id = launch(on_one_node(tiny_data_bin, output_dir, gpus_per_node=2)).job_id
    wait_for_update(cluster, output_dir, job_id, 25)
    cluster.call("scancel", "--batch", "--signal=USR2", job_id)
    time.sleep(1)
    assert cluster.state(job_id) == "RUNNING"
    cluster.stop_controller()
    try:
        os.kill(cluster.pid_of_rank(job_id, 1), signal.SIGKILL)
        wait_for(lambda: "asking again" in log_of(output_dir, job_id), 240, "the first question")
    finally:
        cluster.start_controller()
    wait_for_restart(cluster, job_id, 1)
    wait_for_end(cluster, output_dir, job_id)
    assert "cancelled" not in log_of(output_dir, job_id)
    assert json.loads((output_dir / "status.json").read_text())["phase"] == "finished"
