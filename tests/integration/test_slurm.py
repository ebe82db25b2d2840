"""`roberta launch` on a real SLURM: ranks, preemption, time limits, deaths, node failures, another number of ranks."""

import contextlib
import dataclasses
import os
import re
import signal
import tarfile

import pytest
import torch

from roberta_plugin.cli import jobs
from roberta_plugin.launch import run_folder
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.submission import launch
from tests.conftest import REPOSITORY
from tests.integration.test_preemption import Ranks
from tests.slurm_cluster import environment_of_jobs, needs_slurm, slurm_cluster, wait_for
from tests.tiny_corpus import launched_words

pytestmark = [pytest.mark.integration, pytest.mark.slurm, needs_slurm]

UPDATES = 100
PATIENCE_S = 300.0  # on a machine that has other things to do


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), num_nodes=4) as cluster:
        yield cluster


environment = pytest.fixture(environment_of_jobs, autouse=True)


def recipe_of(data_bin, output_dir, *, updates=UPDATES, options=(), **fields):
    """A recipe of 2 nodes with a rank each and 16 sequences an update, saved every 10 updates."""
    words = launched_words(data_bin)
    words += ["--max-update", str(updates), "--total-num-update", str(UPDATES), "--disable-validation"]
    words += ["--save-interval-updates", "10", "--keep-interval-updates", "3", "--no-epoch-checkpoints"]
    words += [
        *("--sample-break-mode", "complete", "--num-workers", "1", "--dropout", "0", "--attention-dropout", "0"),
        *options,
    ]
    resources = {"nodes": 2, "gpus_per_node": 1, "cpus_per_gpu": 1, "time": "60", "partition": "main"}
    return LaunchSettings(output_dir=output_dir, train=tuple(words), **{**resources, "batch_sequences": 16, **fields})


def row_of(output_dir):
    """The run's row of `roberta jobs`."""
    return jobs.entry(output_dir, jobs.ask_slurm([output_dir]))[0]


def log_of(output_dir, job_id, rank=0):
    """The lines of a rank, from the logs of all nodes; with those of the first also the batch script's."""
    found = []
    for path in sorted((output_dir / "logs").glob(f"{job_id}_*_log.out")):
        for line in path.read_text(errors="replace").splitlines(keepends=True):
            label, colon, words = line.partition(": ")
            is_labelled = colon and label.strip().isdigit()
            if int(label) == rank if is_labelled else rank == 0:
                found.append(words if is_labelled else line)
    return "".join(found)


def updates_done(output_dir, job_id):
    """The updates in rank 0's log, in the order in which they were done, over all attempts."""
    return [
        int(number) for number in re.findall(r'train_inner \| .*"num_updates": "(\d+)"', log_of(output_dir, job_id))
    ]


def batches_seen(log):
    """Tokens and loss of each update."""
    found = re.findall(r'train_inner \| .*"loss": "([\d.]+)".*"wpb": "([\d.]+)"', log)
    return [(float(tokens), float(loss)) for loss, tokens in found]


def wait_for_update(cluster, output_dir, job_id, update):
    def is_there():
        done = updates_done(output_dir, job_id)
        if done and done[-1] >= update:
            return True
        assert cluster.state(job_id) in ("PENDING", "CONFIGURING", "RUNNING"), log_of(output_dir, job_id)[-4000:]
        return False

    wait_for(is_there, PATIENCE_S, f"update {update}")


def wait_for_restart(cluster, job_id, attempt):
    """Wait until SLURM has put the job back, then let it start."""

    def is_back():
        text = cluster.call("scontrol", "show", "job", "--oneliner", job_id)
        return f"Restarts={attempt} " in text and ("JobState=PENDING" in text or "JobState=RUNNING" in text)

    wait_for(is_back, PATIENCE_S, f"restart {attempt}")
    cluster.release(job_id)
    wait_for(lambda: cluster.state(job_id) == "RUNNING", 60, "the restarted job")


def wait_for_end(cluster, output_dir, job_id, state="COMPLETED"):
    wait_for(
        lambda: cluster.state(job_id) not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), PATIENCE_S, "the end"
    )
    assert cluster.state(job_id) == state, log_of(output_dir, job_id)[-4000:]


def final_parameters(output_dir):
    state = torch.load(output_dir / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == UPDATES
    return state["model"]


def assert_same_bits(output_dir, undisturbed):
    expected, found = (final_parameters(each) for each in (undisturbed.output_dir, output_dir))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.fixture(scope="module")
def undisturbed(tiny_data_bin, tmp_path_factory):
    """The same job on one node without SLURM."""
    recipe = recipe_of(tiny_data_bin, tmp_path_factory.mktemp("runs") / "undisturbed", nodes=1, gpus_per_node=2)
    ranks = Ranks(recipe)
    assert ranks.wait() == [0, 0], ranks.log()[-3000:]
    return ranks


@pytest.mark.slow
def test_a_job_that_is_preempted_and_then_terminated_loses_no_update(cluster, undisturbed, tiny_data_bin, tmp_path):
    """Its ranks import from a copy on the disk of their node, as slurm/README.md says."""
    output_dir = tmp_path / "run"
    (tmp_path / "sitecustomize.py").write_text("open(f'{__file__}.imported', 'w')\n")
    with tarfile.open(tmp_path / "site.tar", "w") as site:
        site.add(tmp_path / "sitecustomize.py", arcname="sitecustomize.py")
    documented = re.search(
        r"^setup: .*\n((?:  - .*\n)+)", (REPOSITORY / "slurm" / "README.md").read_text(), re.MULTILINE
    )
    lines = documented[1].replace("/shared/", f"{tmp_path}/").replace("/tmp/site-", f"{cluster.folder}/disk/site-")
    setup = tuple(line.removeprefix("  - ") for line in lines.splitlines())
    job_id = launch(recipe_of(tiny_data_bin, output_dir, setup=setup)).job_id
    wait_for_update(cluster, output_dir, job_id, 15)
    for node in ("node1", "node2"):
        assert (cluster.folder / "disks" / node / f"site-{job_id}" / "sitecustomize.py.imported").is_file(), node
    cluster.call("sbatch", "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    wait_for_restart(cluster, job_id, 1)
    wait_for_update(cluster, output_dir, job_id, 55)
    cluster.call("scancel", "--signal=TERM", job_id)  # no signal ahead of it, as where none is configured
    wait_for_restart(cluster, job_id, 2)
    wait_for_end(cluster, output_dir, job_id)

    log = log_of(output_dir, job_id)
    assert re.search(r"stopped by (SIGTERM|another rank)", log)
    stops = [int(number) for number in re.findall(r"stopped by .* after update (\d+): saving", log)]
    assert len(stops) == 2 and 15 <= stops[0] < 55 <= stops[1] < UPDATES
    assert re.findall(r"resuming from checkpoint_last.pt, update (\d+)", log) == [str(update) for update in stops]
    assert updates_done(output_dir, job_id) == list(range(1, UPDATES + 1))  # each once: none lost, none repeated
    assert_same_bits(output_dir, undisturbed)
    assert run_folder.read_status(output_dir).attempt == 2


def test_a_job_survives_a_killed_rank_and_cut_off_checkpoints(cluster, undisturbed, tiny_data_bin, tmp_path):
    """And is then found, finished, with every rank in its place."""
    output_dir = tmp_path / "run"
    job_id = launch(recipe_of(tiny_data_bin, output_dir)).job_id
    wait_for_update(cluster, output_dir, job_id, 52)  # 40 is the end of an epoch, which gets no file of its own
    os.kill(cluster.pid_of_rank(job_id, 1), signal.SIGKILL)
    wait_for(lambda: cluster.state(job_id) == "PENDING", 30, "the job's end after the death of a rank")
    assert ": the job restarts from its last checkpoint" in log_of(output_dir, job_id)
    assert "(SIGKILL)" in jobs.entry(output_dir, jobs.ask_slurm([output_dir]))[1]
    checkpoints = output_dir / "checkpoints"
    named = sorted(checkpoints.glob("checkpoint_*_*.pt"), key=lambda path: int(path.stem.split("_")[-1]))
    assert len(named) == 3
    for path in (checkpoints / "checkpoint_last.pt", named[-1]):
        os.truncate(path, path.stat().st_size * 2 // 3)
    good = int(named[-2].stem.split("_")[-1])
    before = len(updates_done(output_dir, job_id))

    wait_for_restart(cluster, job_id, 1)
    wait_for_end(cluster, output_dir, job_id)
    log = log_of(output_dir, job_id)
    assert f"{named[-1].name} is broken and was put aside as {named[-1].name}.broken" in log
    assert f"resuming from {named[-2].name}, update {good}" in log
    assert updates_done(output_dir, job_id)[before] == good + 1
    assert set(updates_done(output_dir, job_id)) == set(range(1, UPDATES + 1))
    assert_same_bits(output_dir, undisturbed)

    for rank, node in enumerate(("node1", "node2")):
        assert f"rank {rank} of world size 2 on {node}" in log_of(output_dir, job_id, rank)
    assert '"bsz": "16"' in log
    last = run_folder.read_status(output_dir)
    assert (last.phase, last.update, last.attempt) == ("finished", UPDATES, 1)
    assert last.tokens_per_second > 0
    row = row_of(output_dir)
    assert row[:3] == (job_id, "finished", f"{UPDATES} of {UPDATES}")
    assert float(row[3]) == pytest.approx(last.loss, abs=1e-3)
    assert (output_dir / ".snapshots" / "0" / "code" / "roberta_plugin" / "launch" / "job.py").is_file()


@pytest.mark.slow  # by default: the death of a rank
def test_a_job_survives_the_loss_of_a_node(cluster, undisturbed, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    job_id = launch(recipe_of(tiny_data_bin, output_dir)).job_id
    wait_for_update(cluster, output_dir, job_id, 25)
    cluster.kill_node("node2")
    try:
        wait_for_restart(cluster, job_id, 1)
        wait_for_end(cluster, output_dir, job_id)
    finally:
        cluster.start_node("node2")
        cluster.call("scontrol", "update", "nodename=node2", "state=resume")
    nodes = re.findall(r"rank 1 of world size 2 on (node\d)", log_of(output_dir, job_id, 1))
    assert nodes[0] == "node2" and len(nodes) == 2 and nodes[1] != "node2"
    assert set(updates_done(output_dir, job_id)) == set(range(1, UPDATES + 1))
    assert_same_bits(output_dir, undisturbed)


@pytest.mark.slow  # SLURM's time limits are whole minutes
def test_the_time_limit_ends_in_a_restart_and_a_cancelled_job_stays_ended(cluster, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    job_id = launch(recipe_of(tiny_data_bin, output_dir, updates=100_000, time="2", signal_delay=45)).job_id
    wait_for_restart(cluster, job_id, 1)
    log = log_of(output_dir, job_id)
    stopped_at = int(re.findall(r"stopped by (?:SIGUSR2|another rank) after update (\d+)", log)[0])
    wait_for_update(cluster, output_dir, job_id, stopped_at + 10)
    assert f"resuming from checkpoint_last.pt, update {stopped_at}" in log_of(output_dir, job_id)
    cluster.call("scancel", job_id)
    wait_for_end(cluster, output_dir, job_id, "CANCELLED")
    last = run_folder.read_status(output_dir)
    assert (last.phase, last.attempt) == ("stopped", 1)
    assert last.update == updates_done(output_dir, job_id)[-1]
    assert "the job was cancelled, or SLURM itself restarts it" in log_of(output_dir, job_id)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks_in_the_same_order(cluster, undisturbed, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    first = launch(recipe_of(tiny_data_bin, output_dir, gpus_per_node=2, max_requeues=0)).job_id
    wait_for_update(cluster, output_dir, first, 30)
    for rank, node in enumerate(("node1", "node1", "node2", "node2")):
        assert f"rank {rank} of world size 4 on {node}" in log_of(output_dir, first, rank)
    cluster.call("scancel", "--signal=TERM", first)
    wait_for_end(cluster, output_dir, first, "FAILED")
    assert "--max-requeues is 0" in log_of(output_dir, first)
    last = run_folder.read_status(output_dir)
    assert (last.phase, last.update) == ("stopped", updates_done(output_dir, first)[-1])

    with pytest.raises(ValueError, match="--batch-sequences was 16 and is 32 now"):
        launch(recipe_of(tiny_data_bin, output_dir, nodes=1, batch_sequences=32))
    second = launch(recipe_of(tiny_data_bin, output_dir, nodes=1, gpus_per_node=1)).job_id
    wait_for_end(cluster, output_dir, second)
    assert "rank 0 of world size 1 on" in log_of(output_dir, second)
    assert updates_done(output_dir, first) + updates_done(output_dir, second) == list(range(1, UPDATES + 1))
    expected = batches_seen(undisturbed.log())
    found = batches_seen(log_of(output_dir, first) + log_of(output_dir, second))
    assert len({tokens for tokens, _ in expected}) > 5, "all updates are of one size: the test shows nothing"
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in expected], abs=0.05)


@pytest.mark.slow
def test_a_node_that_hangs_is_named_within_a_minute(cluster, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    job_id = launch(recipe_of(tiny_data_bin, output_dir, gpus_per_node=2, preflight_seconds=25)).job_id
    wait_for(lambda: cluster.has_rank(job_id, 3), 30, "rank 3")
    pid = cluster.pid_of_rank(job_id, 3)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for_end(cluster, output_dir, job_id, "FAILED")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    log = log_of(output_dir, job_id)
    assert "node node2: rank 3: did not start within 25 s" in log
    assert "rank 2" not in log.split("Pre-flight: ")[1].splitlines()[0]
    fields = cluster.call("scontrol", "show", "job", "--oneliner", job_id)
    hours, minutes, seconds = re.findall(r"RunTime=(\d+):(\d+):(\d+)", fields)[0]
    assert 3600 * int(hours) + 60 * int(minutes) + int(seconds) < 60
    assert "Restarts=0 " in fields


def test_nodes_without_a_working_gpu_are_named(cluster, tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    recipe = recipe_of(tiny_data_bin, output_dir, batch_sequences=8)
    recipe = dataclasses.replace(recipe, train=tuple(word for word in recipe.train if word != "--cpu"))
    job_id = launch(recipe).job_id
    assert "TresPerNode=gres:gpu:1" in cluster.call("scontrol", "show", "job", "--oneliner", job_id)
    wait_for_end(cluster, output_dir, job_id, "FAILED")
    log = log_of(output_dir, job_id)
    for rank, node in enumerate(("node1", "node2")):
        assert f"node {node}: rank {rank}: torch sees no GPU" in log
    assert "torch sees no GPU" in read_attempts(output_dir)[0]["reason"]
    assert "Restarts=0 " in cluster.call("scontrol", "show", "job", "--oneliner", job_id)
