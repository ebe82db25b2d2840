"""`roberta launch --nodes 1-3` on a real SLURM: nodes are lost, excluded and come back, and the updates stay the same."""

import os
import re
import signal

import pytest
import torch

from roberta_plugin.launch import status
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.submission import launch
from tests.integration.test_slurm import (
    batches_seen,
    final_parameters,
    log_of,
    recipe_of,
    row_of,
    updates_done,
    wait_for_end,
    wait_for_restart,
    wait_for_update,
)
from tests.slurm_cluster import needs_slurm, slurm_cluster, talking_to, wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slurm,
    pytest.mark.slow,  # four attempts
    needs_slurm,
]


UPDATES = 160
OPTIONS = ("--total-num-update", str(UPDATES))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), num_nodes=3) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def environment(cluster):
    with talking_to(cluster):
        yield
    cluster.call("scancel", "--user=root")


def world_sizes(output_dir, job_id):
    """The number of ranks in each attempt that trained."""
    return [int(size) for size in re.findall(r"rank 0 of world size (\d) on", log_of(output_dir, job_id))]


def test_a_job_goes_on_with_the_nodes_that_there_are(cluster, tiny_data_bin, tmp_path):
    """16 blocks an update on 3 nodes, on 2 after one is lost, on 1 after one is excluded, then on 2 again."""
    fixed, elastic = tmp_path / "fixed", tmp_path / "elastic"
    on_one = launch(recipe_of(tiny_data_bin, fixed, updates=UPDATES, nodes=1, options=OPTIONS)).job_id
    wait_for_end(cluster, fixed, on_one)

    recipe = recipe_of(
        tiny_data_bin, elastic, updates=UPDATES, min_nodes=1, nodes=3, preflight_seconds=40, options=OPTIONS
    )
    job_id = launch(recipe).job_id
    wait_for_update(cluster, elastic, job_id, 45)
    cluster.kill_node("node2")
    try:
        wait_for_restart(cluster, job_id, 1)
        wait_for(lambda: cluster.has_rank(job_id, 1), 60, "rank 1")
        stopped = cluster.pid_of_rank(job_id, 1)
        os.kill(stopped, signal.SIGSTOP)  # the pre-flight waits for it in vain, and names node3
        wait_for(lambda: read_attempts(elastic)[-1]["attempt"] == 1, 120, "the end of the pre-flight")
        assert read_attempts(elastic)[-1]["excluded"] == ["node3"], "a job of 1 to 3 nodes can do without"
        wait_for_restart(cluster, job_id, 2)
        wait_for_update(cluster, elastic, job_id, 60)
        assert row_of(elastic)[1].startswith("running")
        assert status.read_status(elastic).num_gpus in (1, None)
    finally:
        cluster.start_node("node2")
        cluster.call("scontrol", "update", "nodename=node2", "state=resume")
    wait_for(lambda: "node2 idle" in cluster.call("sinfo", "--noheader", "--Node", "--format=%N %T"), 60, "node2")
    cluster.call("scontrol", "requeue", job_id)
    wait_for_restart(cluster, job_id, 3)
    wait_for_end(cluster, elastic, job_id)

    assert world_sizes(elastic, job_id) == [3, 1, 2]
    found = {
        number: batch
        for number, batch in zip(updates_done(elastic, job_id), batches_seen(elastic, job_id), strict=True)
    }
    expected = batches_seen(fixed, on_one)
    assert sorted(found) == list(range(1, UPDATES + 1)) and len(expected) == UPDATES
    assert len({tokens for tokens, _ in expected}) > 5, "all updates are of one size: the test shows nothing"
    assert [found[number][0] for number in sorted(found)] == [tokens for tokens, _ in expected]
    assert [found[number][1] for number in sorted(found)] == pytest.approx([loss for _, loss in expected], abs=0.05)
    ours, theirs = final_parameters(elastic, UPDATES), final_parameters(fixed, UPDATES)
    assert all(torch.allclose(ours[name], theirs[name], atol=0.05) for name in ours)
