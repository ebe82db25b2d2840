"""A free port on the node of rank 0, before its ranks start.

The batch script runs `python -I node.py port FIRST` there. The standard library alone, any Python from 3.8 on, as
`restart.py`.
"""

from __future__ import annotations

import argparse
import errno
import socket
import sys
from collections.abc import Sequence

NUM_TRIES = 200  # pairs of ports
LAST_PORT = 65534


def free_pair(first: int) -> int:
    """The first free pair of ports of `first`, `first` + 2, ...: two runs may have been given one port.

    Raises:
        OSError: if all that were tried are taken.
    """
    for port in range(first, min(first + 2 * NUM_TRIES, LAST_PORT), 2):
        if _is_free(port) and _is_free(port + 1):
            return port
    raise OSError(f"ports {first} to {first + 2 * NUM_TRIES} are all taken")


def _is_free(port: int) -> bool:
    """Whether a server could listen at this port now, on all addresses; lingering connections do not matter."""
    for family in (socket.AF_INET6, socket.AF_INET) if socket.has_dualstack_ipv6() else (socket.AF_INET,):
        try:
            with socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6):
                return True
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # no IPv6 address is configured
                return False
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the first port of a free pair."""
    parser = argparse.ArgumentParser(description="Find a pair of free ports on this node.")
    parser.add_argument("action", choices=("port",))
    parser.add_argument("first", type=int, help="the first port to try")
    sys.stdout.write(f"{free_pair(parser.parse_args(arguments).first)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
