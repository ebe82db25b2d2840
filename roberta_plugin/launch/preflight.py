"""Checks before the training: is every rank there, does its GPU compute, does an all-reduce add up?

Without this, a node that hangs or lacks a GPU shows only as a training that never starts. The ranks meet at a key-value
store of rank 0, next to the address of the training. Each reports there; a rank that does not is named with its node.
"""

from __future__ import annotations

import datetime
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from roberta_plugin.launch.rendezvous import RankInfo

logger = logging.getLogger(__name__)

ALL_WELL = "all well"
REDUCE_SECONDS = 60.0  # NCCL sets up its connections in the first all-reduce
SAY_EVERY_S = 30.0
REPORT_IT = "Exclude a broken node with --exclude NODE and report it to your cluster's administrators"


class PreflightError(RuntimeError):
    """The job cannot train on these nodes; `nodes` holds the faulty ones, as far as known."""

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(f"Pre-flight: {message}")
        self.nodes = nodes


def meet(rank_info: RankInfo, *, seconds: float) -> TCPStore:
    """Open the store on rank 0, or connect to it.

    Raises:
        PreflightError: if the address is taken (rank 0) or cannot be reached; names the node.
    """
    host, port, limit = rank_info.hosts[0], rank_info.preflight_port, datetime.timedelta(seconds=seconds)
    try:
        return TCPStore(host, port, rank_info.world_size, rank_info.rank == 0, timeout=limit, wait_for_workers=False)
    except RuntimeError as error:
        reason = f"cannot be reached within {seconds:.0f} s"
        if rank_info.rank == 0:
            reason = "cannot be opened: is the port taken? Give another --port"
        raise PreflightError(f"rank {rank_info.rank} on {rank_info.host}: {host}:{port} (rank 0) {reason}.") from error


def check_ranks(
    store: Store,
    rank_info: RankInfo,
    finding: str,
    *,
    seconds: float,
    key: str = "check",
    silent: str = "did not start",
) -> None:
    """Share this rank's finding, ALL_WELL or a fault, with all ranks; rank 0 collects them.

    Raises:
        PreflightError: on every rank, if any of them found something wrong or did not report within `seconds`.
    """
    store.set(f"{key}/{rank_info.rank}", finding)
    if rank_info.rank == 0:
        missing = _missing(store, rank_info, key, seconds=seconds)
        found = {
            rank: store.get(f"{key}/{rank}").decode() for rank in range(rank_info.world_size) if rank not in missing
        }
        found |= dict.fromkeys(missing, f"{silent} within {seconds:.0f} s")
        store.set(
            f"{key}/verdict", json.dumps({rank: text for rank, text in sorted(found.items()) if text != ALL_WELL})
        )
    try:
        store.wait([f"{key}/verdict"], datetime.timedelta(seconds=2 * seconds))
    except RuntimeError as error:
        raise PreflightError(
            f"rank {rank_info.rank} on {rank_info.host}: rank 0 on {rank_info.hosts[0]} has fallen silent."
        ) from error
    faults = {int(rank): text for rank, text in json.loads(store.get(f"{key}/verdict").decode()).items()}
    if faults:
        told = "; ".join(f"node {rank_info.host_of(rank)}: rank {rank}: {text}" for rank, text in faults.items())
        nodes = tuple(dict.fromkeys(map(rank_info.host_of, faults)))
        raise PreflightError(
            f"{told}. {REPORT_IT}; where a node is only slow, allow more time with --preflight-seconds.", nodes=nodes
        )


def check_all_reduce(store: Store, rank_info: RankInfo, *, is_cpu: bool, seconds: float = REDUCE_SECONDS) -> None:
    """All-reduce one number per rank on the devices and compare with the known sum.

    Raises:
        PreflightError: on every rank, if a rank got another sum, an error, or nothing within `seconds`.
    """
    finding = _all_reduce(store, rank_info, is_cpu=is_cpu, seconds=seconds)
    check_ranks(store, rank_info, finding, seconds=seconds, key="reduce", silent="was lost in the all-reduce")
    dist.destroy_process_group()


def check_device(number: int, *, num_gpus: int) -> str:
    """ALL_WELL if torch sees `num_gpus` GPUs and the one of this number can multiply, else the fault."""
    if not torch.cuda.is_available():
        return "torch sees no GPU (torch.cuda.is_available() is False); see nvidia-smi on the node"
    if torch.cuda.device_count() < num_gpus:
        return f"torch sees {torch.cuda.device_count()} GPUs and the node runs {num_gpus} ranks"
    try:
        ones = torch.ones(512, 512, device=f"cuda:{number}")
        is_right = bool((ones @ ones == 512).all())
    except RuntimeError as error:
        return f"GPU {number} fails: {error}"
    return ALL_WELL if is_right else f"GPU {number} multiplies wrongly"


def check_this_node(num_gpus: int) -> None:
    """Check this node's GPUs in a separate process, which leaves no GPU memory occupied.

    Raises:
        PreflightError: naming the node and the fault.
    """
    program = (
        f"from {__name__} import check_device\nfor n in range({num_gpus}): print(check_device(n, num_gpus={num_gpus}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    findings = [line for line in done.stdout.splitlines() if line != ALL_WELL]
    if done.returncode:  # a traceback, or a signal without one
        findings = done.stderr.splitlines()[-1:] or [f"the check of its GPUs ended with exit code {done.returncode}"]
    if findings:
        host = socket.gethostname()
        raise PreflightError(f"node {host}: {findings[0]}. {REPORT_IT}.", nodes=(host,))


def from_rank_zero(store: Store, rank_info: RankInfo, key: str, function: Callable[[], str], *, seconds: float) -> str:
    """Run `function` on rank 0 alone, and return its result on all ranks.

    Raises:
        RuntimeError: on the other ranks, with the message of rank 0's exception.
    """
    if rank_info.rank == 0:
        try:
            text = function()
        except Exception as error:
            store.set(key, f"error:{error}")
            raise
        store.set(key, f"ok:{text}")
        return text
    store.wait([key], datetime.timedelta(seconds=seconds))
    is_well, _, text = store.get(key).decode().partition(":")
    if is_well != "ok":
        raise RuntimeError(f"Rank 0 on {rank_info.hosts[0]}: {text}")
    return text


def _all_reduce(store: Store, rank_info: RankInfo, *, is_cpu: bool, seconds: float) -> str:
    device = torch.device("cpu") if is_cpu else torch.device("cuda", rank_info.local_rank)
    try:
        dist.init_process_group(
            "gloo" if is_cpu else "nccl",
            store=PrefixStore("group", store),
            rank=rank_info.rank,
            world_size=rank_info.world_size,
            timeout=datetime.timedelta(seconds=4 * seconds),
        )
        total = torch.tensor([float(rank_info.rank + 1)], dtype=torch.float64, device=device)
        work = dist.all_reduce(total, async_op=True)
        deadline = time.monotonic() + seconds
        while not work.is_completed():
            if time.monotonic() > deadline:
                return f"the all-reduce did not end within {seconds:.0f} s"
            time.sleep(0.01)
        work.wait()
    except RuntimeError as error:
        return f"the all-reduce failed: {error}"
    expected = rank_info.world_size * (rank_info.world_size + 1) / 2
    return ALL_WELL if total.item() == expected else f"the all-reduce gave {total.item()} instead of {expected}"


def _missing(store: Store, rank_info: RankInfo, key: str, *, seconds: float) -> set[int]:
    """The ranks that have not reported within `seconds`; says now and then on which nodes they are."""
    missing = set(range(rank_info.world_size))
    start = say_at = time.monotonic()
    while missing := {rank for rank in missing if not store.check([f"{key}/{rank}"])}:
        now = time.monotonic()
        if now > start + seconds:
            break
        if now > say_at + SAY_EVERY_S:
            say_at = now
            hosts = sorted({rank_info.host_of(rank) for rank in missing})
            logger.info(
                f"pre-flight: waiting for {len(missing)} of {rank_info.world_size} ranks, on {', '.join(hosts)}"
            )
        time.sleep(0.02)
    return missing
