"""Rank, world size and address come from SLURM's variables, and must be what the recipe asked for.

A free pair of ports is found beside those taken.
"""

import itertools
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roberta_plugin.launch import rendezvous
from roberta_plugin.launch.rendezvous import (
    RankInfo,
    distributed_arguments,
    expand_node_list,
    port_of,
    rank_from_environment,
)
from tests.slurm_cluster import free_ports


def slurm(rank, *, nodes=4, ranks_per_node=8, node_list="gpu[01-04]", **changes):
    """What srun sets for a rank."""
    values = {
        "SLURM_PROCID": rank,
        "SLURM_NTASKS": nodes * ranks_per_node,
        "SLURM_LOCALID": rank % ranks_per_node,
        "SLURM_NODEID": rank // ranks_per_node,
        "SLURM_JOB_NODELIST": node_list,
    }
    return {name: str(value) for name, value in {**values, **changes}.items()}


def place_of(rank, **options):
    return rank_from_environment(num_nodes=4, ranks_per_node=8, port=20100, environment=slurm(rank, **options))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("a1,b2", ["a1", "b2"]),
        ("gpu[1-3,07],login", ["gpu1", "gpu2", "gpu3", "gpu07", "login"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[9-11]x,m", ["n9x", "n10x", "n11x", "m"]),
    ],
)
def test_node_lists_are_expanded(text, hosts):
    assert list(expand_node_list(text)) == hosts


def test_all_ranks_agree_on_one_address_and_fill_nodes_in_turn():
    places = [place_of(rank) for rank in range(32)]
    assert {place.init_method for place in places} == {"tcp://gpu01:20100"}
    assert {place.preflight_port for place in places} == {20101}
    assert [place.rank for place in places] == list(range(32))
    assert [place.host for place in places] == [f"gpu0{1 + rank // 8}" for rank in range(32)]
    assert places[0].host_of(31) == "gpu04"


@pytest.mark.parametrize("changes", [{"SLURM_NTASKS": 31}, {"SLURM_JOB_NODELIST": "gpu[01-03]"}])
def test_another_world_size_is_refused_on_every_rank(changes):
    for rank in (0, 9):
        with pytest.raises(RuntimeError, match="World size mismatch: the recipe asks for 4 nodes x 8 ranks = 32 ranks"):
            place_of(rank, **changes)


def test_ranks_that_are_dealt_out_otherwise_are_refused():
    with pytest.raises(RuntimeError, match="--distribution=block"):
        place_of(9, SLURM_NODEID=0, SLURM_LOCALID=2)


def test_outside_of_srun_the_missing_variables_are_named():
    with pytest.raises(RuntimeError, match="SLURM_PROCID, SLURM_NTASKS"):
        rank_from_environment(num_nodes=1, ranks_per_node=1, port=20000, environment={})


def test_the_port_is_the_runs_own_and_below_those_of_outgoing_connections():
    ports = [port_of(Path(f"/runs/{number}")) for number in range(300)]
    assert ports == [port_of(Path(f"/runs/{number}")) for number in range(300)]
    assert all(20000 <= port < 32767 and port % 2 == 0 for port in ports)
    assert len(set(ports)) > 280


def test_fairseq_is_told_everything():
    words = distributed_arguments(place_of(13), is_cpu=False)
    options = dict(itertools.pairwise(words))
    assert options["--distributed-world-size"] == "32"
    assert options["--distributed-rank"] == "13"
    assert options["--distributed-init-method"] == "tcp://gpu01:20100"
    assert options["--device-id"] == "5"
    assert "--distributed-no-spawn" in words
    assert "gloo" not in words
    on_cpu = distributed_arguments(place_of(13), is_cpu=True)
    assert {"gloo", "legacy_ddp"} <= set(on_cpu)


def test_a_single_rank_needs_no_rendezvous_but_is_told_that_it_is_single():
    place = RankInfo(rank=0, world_size=1, local_rank=0, ranks_per_node=1, hosts=("a",), port=20000)
    assert distributed_arguments(place, is_cpu=False) == ["--distributed-world-size", "1"]


def listen(port, address="127.0.0.1"):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(1)
    return server


@pytest.fixture
def first():
    """The first of four ports that are free."""
    return next(
        port for port in free_ports(50) if rendezvous.free_pair(port) == port == rendezvous.free_pair(port + 2) - 2
    )


def test_the_first_pair_is_taken_where_it_is_free(first):
    assert rendezvous.free_pair(first) == first


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_pair_of_which_one_is_taken_is_passed_over(first, offset, address):
    with listen(first + offset, address):
        assert rendezvous.free_pair(first) == first + 2
        done = subprocess.run(
            [sys.executable, "-I", rendezvous.__file__, str(first)], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{first + 2}\n"


def test_there_is_an_end(first, monkeypatch):
    monkeypatch.setattr(rendezvous, "NUM_TRIES", 1)
    with listen(first), pytest.raises(OSError, match="are all taken"):
        rendezvous.free_pair(first)
