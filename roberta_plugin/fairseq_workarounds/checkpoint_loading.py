"""Faults 1 and 2: checkpoints that torch >= 2.6 refuses to load, alone or on several ranks."""

from __future__ import annotations

import argparse
import io
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils

_fairseq_broadcast = distributed_utils._broadcast_object_slow


def broadcast_object(obj: Any, src_rank: int, group: object, dist_device: torch.device) -> Any:
    """Send `obj` from rank `src_rank` to all ranks of the group, in fairseq's own form; see fault 2."""
    if distributed_utils.get_rank(group) == src_rank:
        return _fairseq_broadcast(obj, src_rank, group, dist_device)
    length = torch.zeros(1, dtype=torch.int64, device=dist_device)
    distributed_utils.broadcast(length, src=src_rank, group=group)
    data = torch.empty(int(length), dtype=torch.uint8, device=dist_device)
    distributed_utils.broadcast(data, src=src_rank, group=group)
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), map_location="cpu", weights_only=False)


def install() -> None:
    """Allow-list `argparse.Namespace`, and read broadcast checkpoints whole."""
    torch.serialization.add_safe_globals([argparse.Namespace])
    distributed_utils._broadcast_object_slow = broadcast_object
