"""Where the ranks of a job meet: SLURM's environment -> rank, world size, address and port.

fairseq finds these by itself only in some setups. Elsewhere it falls back to localhost, and one training becomes
several. So every number is given to it explicitly, and compared with the recipe.
The batch script runs this file by `python -I` on the node of rank 0, to find a free port: hence the standard library
alone, any Python from 3.8 on, as `restart.py`.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_PORT = 20000  # ports from 32768 on may be taken by outgoing connections
NUM_PORT_PAIRS = 5000
NUM_TRIES = 200  # pairs of ports
LAST_PORT = 65534


@dataclass(frozen=True)
class RankInfo:
    """One process of a job: its rank, the job's size, and the address of rank 0, which torchrun knows without hosts."""

    rank: int
    world_size: int
    local_rank: int
    ranks_per_node: int = 0
    hosts: tuple[str, ...] = ()
    port: int = 0

    @property
    def host(self) -> str:
        """The node of this rank."""
        return self.host_of(self.rank)

    @property
    def preflight_port(self) -> int:
        """The port at which the ranks meet before the training, next to the training's."""
        return self.port + 1

    @property
    def init_method(self) -> str:
        """The address of rank 0, as torch.distributed and fairseq write it."""
        return f"tcp://{self.hosts[0]}:{self.port}" if self.hosts else "env://"

    def host_of(self, rank: int) -> str:
        """The node of a rank: nodes are filled one after the other."""
        return self.hosts[rank // self.ranks_per_node]


def rank_from_environment(
    *, num_nodes: int, ranks_per_node: int, port: int, environment: Mapping[str, str] = os.environ
) -> RankInfo:
    """Read this process's rank from SLURM's variables. Nodes and ranks come from the recipe, the port from rank 0.

    Raises:
        RuntimeError: outside of `srun`, or if the job's shape differs from the recipe's.
    """
    names = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_NODELIST")
    missing = [name for name in names if name not in environment]
    if missing:
        raise RuntimeError(
            f"{', '.join(missing)} not set: this is meant to be started by srun, as `roberta launch` does."
        )
    rank, world_size, local_rank, node = (int(environment[name]) for name in names[:4])
    hosts = expand_node_list(environment["SLURM_JOB_NODELIST"])
    expected = num_nodes * ranks_per_node
    if world_size != expected or len(hosts) != num_nodes:
        raise RuntimeError(
            f"World size mismatch: the recipe asks for {num_nodes} nodes x {ranks_per_node} ranks = {expected} ranks, "
            f"and SLURM started {world_size} ranks on {len(hosts)} nodes. Submit with `roberta launch`, and keep "
            f"--nodes and --ntasks out of the environment (SBATCH_*, SLURM_*)."
        )
    if rank != node * ranks_per_node + local_rank:
        raise RuntimeError(
            f"Rank {rank} is process {local_rank} of node {node} ({hosts[node]}), where rank "
            f"{node * ranks_per_node + local_rank} belongs: the job needs --distribution=block, which "
            f"`roberta launch` sets."
        )
    return RankInfo(
        rank=rank, world_size=world_size, local_rank=local_rank, ranks_per_node=ranks_per_node, hosts=hosts, port=port
    )


def attempt() -> int:
    """The number of restarts of this job by SLURM or torchrun."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def expand_node_list(text: str) -> tuple[str, ...]:
    """Expand SLURM's short form: `gpu[1-3,07],login` -> gpu1, gpu2, gpu3, gpu07, login."""
    hosts: list[str] = []
    for entry in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names = [""]
        for plain, numbers in re.findall(r"([^\[]+)|\[([^\]]*)\]", entry):
            endings = [plain] if plain else [number for part in numbers.split(",") for number in _expand_range(part)]
            names = [name + ending for name in names for ending in endings]
        hosts += names
    return tuple(hosts)


def _expand_range(part: str) -> list[str]:
    first, _, last = part.partition("-")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]


def port_of(output_dir: Path) -> int:
    """The port of a run; its pre-flight uses the next one. Restarts keep both."""
    return FIRST_PORT + 2 * (zlib.crc32(str(output_dir).encode()) % NUM_PORT_PAIRS)


def distributed_arguments(rank_info: RankInfo, *, is_cpu: bool) -> list[str]:
    """fairseq-train's options for this rank, so that fairseq infers nothing."""
    arguments = ["--distributed-world-size", str(rank_info.world_size)]
    if rank_info.world_size == 1:
        return arguments
    arguments += ["--distributed-rank", str(rank_info.rank), "--distributed-init-method", rank_info.init_method]
    arguments += ["--distributed-no-spawn", "--device-id", "0" if is_cpu else str(rank_info.local_rank)]
    if is_cpu:  # torch's own data-parallel wrapper, fairseq's default, expects GPUs
        arguments += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    return arguments


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
    """True if a server could listen at this port now, on all addresses; lingering connections do not matter."""
    for family in (socket.AF_INET6, socket.AF_INET) if socket.has_dualstack_ipv6() else (socket.AF_INET,):
        try:
            with socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6):
                return True
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # no IPv6 address is configured
                return False
    return False


if __name__ == "__main__":
    sys.stdout.write(f"{free_pair(int(sys.argv[1]))}\n")
