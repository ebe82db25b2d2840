"""A free pair of ports is found beside those taken."""

import socket
import subprocess
import sys

import pytest

from roberta_plugin.launch import rendezvous
from tests.slurm_cluster import free_ports


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
