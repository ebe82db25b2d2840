"""The pre-flight names the node of a rank that is missing or broken, on every rank."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from roberta_plugin.launch import preflight
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.rendezvous import RankInfo
from tests.slurm_cluster import free_ports

HOSTS = ("localhost", "gpu2", "gpu3")


def place_of(rank, port):
    return RankInfo(rank=rank, world_size=6, local_rank=rank % 2, ranks_per_node=2, hosts=HOSTS, port=port)


def on_ranks(ranks, function):
    """Call `function(store, place)` for some ranks of a job of six, each in a thread; return results or errors."""
    port = free_ports(1)[0]
    everyone_has_ended = threading.Barrier(len(ranks))

    def run(rank):
        store = preflight.meet(place_of(rank, port), seconds=10)
        try:
            return function(store, place_of(rank, port))
        except RuntimeError as error:
            return str(error)
        finally:
            everyone_has_ended.wait(30)  # rank 0 holds the store

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(run, ranks))


def test_all_well():
    results = on_ranks(
        range(6), lambda store, place: preflight.check_ranks(store, place, preflight.ALL_WELL, seconds=10)
    )
    assert results == [None] * 6


def test_a_rank_that_does_not_start_is_named_with_its_node():
    def check(store, place):
        preflight.check_ranks(store, place, preflight.ALL_WELL, seconds=1)

    results = on_ranks([0, 1, 2, 3, 4], check)
    assert len(set(results)) == 1
    assert "node gpu3: rank 5: did not start within 1 s" in results[0]
    assert "gpu2" not in results[0]
    assert "--exclude" in results[0]


def test_the_error_holds_the_nodes_at_fault():
    def check(store, place):
        with pytest.raises(preflight.PreflightError) as failed:
            preflight.check_ranks(store, place, preflight.ALL_WELL, seconds=1)
        return failed.value.nodes

    assert on_ranks([0, 1, 3], check) == [("gpu2", "gpu3")] * 3


def test_a_rank_0_that_does_not_answer_is_named():
    def check(store, place):
        if place.rank:
            preflight.check_ranks(store, place, preflight.ALL_WELL, seconds=0.2)

    assert on_ranks([0, 1], check)[1] == "Pre-flight: rank 1 on localhost: rank 0 on localhost has fallen silent."


def test_a_rank_that_is_late_is_waited_for():
    def check(store, place):
        if place.rank == 5:
            time.sleep(1.5)
        preflight.check_ranks(store, place, preflight.ALL_WELL, seconds=10)

    assert on_ranks(range(6), check) == [None] * 6
    assert LaunchSettings(output_dir=Path("r"), train=()).preflight_seconds >= 300, (
        "imports of a thousand ranks take minutes"
    )


def test_a_broken_gpu_is_named_with_its_node():
    def check(store, place):
        finding = "GPU 1 multiplies wrongly" if place.rank == 3 else preflight.ALL_WELL
        preflight.check_ranks(store, place, finding, seconds=10)

    results = on_ranks(range(6), check)
    assert len(set(results)) == 1
    assert "node gpu2: rank 3: GPU 1 multiplies wrongly" in results[0]


def test_an_address_that_cannot_be_reached_names_rank_0s_node():
    with pytest.raises(RuntimeError, match=r"rank 4 on gpu3: localhost:\d+ \(rank 0\) cannot be reached"):
        preflight.meet(place_of(4, free_ports(1)[0]), seconds=1)


def test_an_address_that_is_taken_asks_for_another_port():
    port = free_ports(1)[0]
    first = preflight.meet(place_of(0, port), seconds=5)
    with pytest.raises(RuntimeError, match="Give another --port"):
        preflight.meet(place_of(0, port), seconds=5)
    del first


def test_rank_0_speaks_for_all_also_when_it_fails():
    def ask(store, place):
        return preflight.from_rank_zero(store, place, "a", lambda: f"from rank {place.rank}", seconds=10)

    assert on_ranks(range(3), ask) == ["from rank 0"] * 3

    def fail(store, place):
        def function():
            raise RuntimeError("no checkpoint is whole")

        return preflight.from_rank_zero(store, place, "b", function, seconds=10)

    results = on_ranks(range(3), fail)
    assert results == ["no checkpoint is whole", *["Rank 0 on localhost: no checkpoint is whole"] * 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_rank_without_gpu_says_so():
    assert "torch sees no GPU" in preflight.check_device(0, num_gpus=1)


@pytest.mark.gpu
def test_a_gpu_that_computes_is_well(gpu):
    assert preflight.check_device(0, num_gpus=1) == preflight.ALL_WELL
