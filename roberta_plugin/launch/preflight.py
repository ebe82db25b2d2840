"""Checks before the training: is every rank there, and does its GPU compute?

Without this, a node that hangs or has no GPU shows only as a training that never starts. The ranks meet at a key-value
store of rank 0, next to the address of the training. Each reports there; a rank that does not is named with its node.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable

import torch
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from roberta_plugin.launch.rendezvous import RankInfo

ALL_WELL = "all well"
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


def check_ranks(store: Store, rank_info: RankInfo, finding: str, *, seconds: float) -> None:
    """Share this rank's finding, ALL_WELL or a fault, with all ranks; rank 0 collects them.

    Raises:
        PreflightError: on every rank, if any of them found something wrong or did not report within `seconds`.
    """
    store.set(f"finding/{rank_info.rank}", finding)
    deadline = time.monotonic() + seconds

    def finding_of(rank: int) -> str:
        left = max(0.01, deadline - time.monotonic())
        try:
            store.wait([f"finding/{rank}"], datetime.timedelta(seconds=left))
        except RuntimeError:
            return f"did not start within {seconds:.0f} s"
        return store.get(f"finding/{rank}").decode()

    def collect_faults() -> str:
        findings = {rank: finding_of(rank) for rank in range(rank_info.world_size)}
        return json.dumps([(rank, text) for rank, text in findings.items() if text != ALL_WELL])

    faults = json.loads(from_rank_zero(store, rank_info, "verdict", collect_faults, seconds=2 * seconds))
    if faults:
        told = "; ".join(f"node {rank_info.host_of(rank)}: rank {rank}: {text}" for rank, text in faults)
        raise PreflightError(
            f"{told}. {REPORT_IT}; where a node is only slow, allow more time with --preflight-seconds.",
            nodes=tuple(dict.fromkeys(rank_info.host_of(rank) for rank, _ in faults)),
        )


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


def from_rank_zero(store: Store, rank_info: RankInfo, key: str, function: Callable[[], str], *, seconds: float) -> str:
    """Run `function` on rank 0 alone, and return its result on all ranks.

    Raises:
        RuntimeError: on the other ranks, with the message of rank 0's exception.
        PreflightError: on the other ranks, if rank 0 has no result within `seconds`.
    """
    if rank_info.rank == 0:
        try:
            text = function()
        except Exception as error:
            store.set(key, f"error:{error}")
            raise
        store.set(key, f"ok:{text}")
        return text
    try:
        store.wait([key], datetime.timedelta(seconds=seconds))
    except RuntimeError as error:
        raise PreflightError(
            f"rank {rank_info.rank} on {rank_info.host}: rank 0 on {rank_info.hosts[0]} has fallen silent."
        ) from error
    is_well, _, text = store.get(key).decode().partition(":")
    if is_well != "ok":
        raise RuntimeError(f"Rank 0 on {rank_info.hosts[0]}: {text}")
    return text
