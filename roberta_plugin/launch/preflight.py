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
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from roberta_plugin.launch.rendezvous import RankInfo

logger = logging.getLogger(__name__)

ALL_WELL = "all well"
REDUCE_SECONDS = 60.0  # NCCL sets up its connections in the first all-reduce
SAY_EVERY_S = 30.0


class PreflightError(RuntimeError):
    """The job cannot train on these nodes; `nodes` holds the faulty ones, as far as known."""

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes


def meet(rank_info: RankInfo, *, seconds: float) -> TCPStore:
    """Open the store on rank 0, or connect to it.

    Raises:
        PreflightError: if the address is taken (rank 0) or cannot be reached; names the node.
    """
    try:
        return TCPStore(
            rank_info.hosts[0],
            rank_info.preflight_port,
            rank_info.world_size,
            rank_info.rank == 0,
            timeout=datetime.timedelta(seconds=seconds),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        address = f"{rank_info.hosts[0]}:{rank_info.preflight_port}"
        reason = f"cannot be reached within {seconds:.0f} s"
        if rank_info.rank == 0:
            reason = "cannot be opened: is the port taken? Give another --port"
        raise PreflightError(
            f"Pre-flight, rank {rank_info.rank} on {rank_info.host}: {address} (rank 0) {reason}."
        ) from error


def check_ranks(store: Store, rank_info: RankInfo, finding: str, *, seconds: float) -> None:
    """Share this rank's finding, ALL_WELL or a fault, with all ranks.

    Raises:
        PreflightError: on every rank, if any of them found something wrong or did not report within `seconds`.
    """
    _report(store, rank_info, "check", finding, seconds=seconds, silent="did not start")


def check_all_reduce(store: Store, rank_info: RankInfo, *, is_cpu: bool, seconds: float = REDUCE_SECONDS) -> None:
    """All-reduce one number per rank on the devices and compare with the known sum.

    Raises:
        PreflightError: on every rank, if a rank got another sum, an error, or nothing within `seconds`.
    """
    finding = _all_reduce(store, rank_info, is_cpu=is_cpu, seconds=seconds)
    _report(store, rank_info, "reduce", finding, seconds=seconds, silent="was lost in the all-reduce")
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
    program = f"from {__name__} import ALL_WELL, check_local_gpus; print(check_local_gpus({num_gpus}))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    finding = (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]
    if finding != ALL_WELL:
        host = socket.gethostname()
        raise PreflightError(
            f"Pre-flight: node {host}: {finding}. Exclude a broken node with `exclude: NODE` and report it to your "
            f"cluster's administrators.",
            nodes=(host,),
        )


def check_local_gpus(num_gpus: int) -> str:
    """ALL_WELL if this process sees `num_gpus` GPUs and each can multiply, else the fault."""
    findings = (check_device(number, num_gpus=num_gpus) for number in range(num_gpus))
    return next((finding for finding in findings if finding != ALL_WELL), ALL_WELL)


def from_rank_zero(store: Store, rank_info: RankInfo, key: str, function: Callable[[], str], *, seconds: float) -> str:
    """Run `function` on rank 0 alone, and return its result on all ranks.

    Raises:
        RuntimeError: on the other ranks, with the message of rank 0's exception.
    """
    if rank_info.rank:
        store.wait([key], datetime.timedelta(seconds=seconds))
        answer: str = store.get(key).decode()
        is_well, _, text = answer.partition(":")
        if is_well != "ok":
            raise RuntimeError(f"Rank 0 on {rank_info.hosts[0]}: {text}")
        return text
    try:
        text = function()
    except Exception as error:
        store.set(key, f"error:{error}")
        raise
    store.set(key, f"ok:{text}")
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


def _report(store: Store, rank_info: RankInfo, key: str, finding: str, *, seconds: float, silent: str) -> None:
    """Share this rank's result; rank 0 collects all reports and publishes the verdict."""
    store.set(f"{key}/{rank_info.rank}", finding)
    if rank_info.rank == 0:
        findings = _findings(store, rank_info, key, seconds=seconds, silent=silent)
        store.set(f"{key}/verdict", json.dumps(findings))
    try:
        store.wait([f"{key}/verdict"], datetime.timedelta(seconds=2 * seconds))
    except RuntimeError as error:
        raise PreflightError(
            f"Pre-flight, rank {rank_info.rank} on {rank_info.host}: rank 0 on {rank_info.hosts[0]} has fallen silent."
        ) from error
    findings = json.loads(store.get(f"{key}/verdict").decode())
    if findings:
        verdict = "; ".join(f"node {node}: {', '.join(texts)}" for node, texts in findings.items())
        raise PreflightError(
            f"Pre-flight: {verdict}. Exclude a broken node with --exclude NODE and report it to your cluster's "
            f"administrators; where a node is only slow, allow more time with --preflight-seconds.",
            nodes=tuple(findings),
        )


def _findings(store: Store, rank_info: RankInfo, key: str, *, seconds: float, silent: str) -> dict[str, list[str]]:
    """The faults, by node."""
    missing = set(range(rank_info.world_size))
    start = time.monotonic()
    say_at = start + SAY_EVERY_S
    while missing:
        missing = {rank for rank in missing if not store.check([f"{key}/{rank}"])}
        now = time.monotonic()
        if now > start + seconds:
            break
        if missing and now > say_at:
            say_at = now + SAY_EVERY_S
            logger.info(f"pre-flight: waiting for {_on_nodes(missing, rank_info)}; {start + seconds - now:.0f} s left")
        time.sleep(0.02)
    findings: dict[str, list[str]] = {}
    for rank in range(rank_info.world_size):
        finding = f"{silent} within {seconds:.0f} s" if rank in missing else store.get(f"{key}/{rank}").decode()
        if finding != ALL_WELL:
            findings.setdefault(rank_info.host_of(rank), []).append(f"rank {rank}: {finding}")
    return findings


def _on_nodes(ranks: Iterable[int], rank_info: RankInfo) -> str:
    """A description such as `9 of 16 ranks, on gpu2 (8), gpu1 (1)`."""
    hosts = [rank_info.host_of(rank) for rank in ranks]
    counts = sorted({host: hosts.count(host) for host in hosts}.items(), key=lambda pair: -pair[1])
    more = f" and {len(counts) - 8} more nodes" if len(counts) > 8 else ""
    names = ", ".join(f"{host} ({count})" for host, count in counts[:8])
    return f"{len(hosts)} of {rank_info.world_size} ranks, on {names}{more}"
