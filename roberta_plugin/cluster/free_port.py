"""The first free pair of ports on this machine, from a given one on: `python -I free_port.py FIRST`.

The batch script asks on the node of rank 0 before it starts the ranks: two runs may have been given the same ports.
The standard library alone, any Python from 3.8 on, as `restart/`.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

NUM_TRIES = 200
LAST_PORT = 65534


def free_pair(first: int) -> int:
    """The first of `first`, `first` + 2, ... which nobody listens at, nor at its neighbour.

    Raises:
        OSError: if all that were tried are taken.
    """
    for port in range(first, min(first + 2 * NUM_TRIES, LAST_PORT), 2):
        if _is_free(port) and _is_free(port + 1):
            return port
    raise OSError(f"ports {first} to {first + 2 * NUM_TRIES} are all taken")


def _is_free(port: int) -> bool:
    """Whether a server could listen at this port now, on all addresses, whatever connections linger there."""
    with ExitStack() as stack:
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            try:
                probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            except OSError:  # a machine without IPv6
                continue
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
                probe.listen(1)
            except OSError as error:
                if family == socket.AF_INET6 and error.errno == 99:  # no IPv6 address is configured
                    continue
                return False
    return True


if __name__ == "__main__":
    sys.stdout.write(f"{free_pair(int(sys.argv[1]))}\n")
