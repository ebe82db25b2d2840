"""Faults 1, 2 and 12: checkpoints that torch >= 2.6 refuses to load, alone or on several ranks, and damaged ones."""

from __future__ import annotations

import argparse
import io
import pickle
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager

from roberta_plugin.checkpoint_files import (
    REMEDY,
    check_checkpoint,
    check_claims,
    explain_refusal,
    unlisted_class,
)

_fairseq_load = checkpoint_utils.load_checkpoint_to_cpu
_fairseq_broadcast = distributed_utils._broadcast_object_slow


def broadcast_object(obj: Any, src_rank: int, group: object, dist_device: torch.device) -> Any:
    """Send `obj` from rank `src_rank` to all ranks of the group, in fairseq's format; see fault 2."""
    if distributed_utils.get_rank(group) == src_rank:
        return _fairseq_broadcast(obj, src_rank, group, dist_device)
    length = torch.zeros(1, dtype=torch.int64, device=dist_device)
    distributed_utils.broadcast(length, src=src_rank, group=group)
    data = torch.empty(int(length), dtype=torch.uint8, device=dist_device)
    distributed_utils.broadcast(data, src=src_rank, group=group)
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), map_location="cpu", weights_only=False)


def load_checked(
    path: str, arg_overrides: dict[str, Any] | None = None, load_on_all_ranks: bool = False
) -> dict[str, Any]:
    """Check a checkpoint's checksums, then load it as fairseq's `load_checkpoint_to_cpu`; see fault 12.

    Raises:
        ValueError: if the file is damaged or not a checkpoint of fairseq.
        UnpicklingError: if it holds objects that could run code.
        OSError: if the file does not exist or cannot be read.
    """
    if not PathManager.path_requires_pathmanager(path):
        check_checkpoint(path)
    try:
        state: dict[str, Any] = _fairseq_load(path, arg_overrides, load_on_all_ranks)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch.load and fairseq's upgrade of old layouts raise errors of any class
        kind = ValueError if unlisted_class(error) is None else pickle.UnpicklingError
        raise kind(f"{explain_refusal(path, error)} {REMEDY}") from error
    if not PathManager.path_requires_pathmanager(path):
        check_claims(path, state)
    return state


def install() -> None:
    """Allow-list `argparse.Namespace`, check files before loading, and trust checkpoints from rank 0."""
    checkpoint_utils.load_checkpoint_to_cpu = load_checked
    torch.serialization.add_safe_globals([argparse.Namespace])
    distributed_utils._broadcast_object_slow = broadcast_object
