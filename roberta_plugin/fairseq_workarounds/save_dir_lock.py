"""Fault 10: two trainings at once use one save folder."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager

from roberta_plugin.locks import TRAINING_LOCK, try_lock

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
OTHER_HOST_SECONDS = 120.0  # a file server may keep a dead node's lock for a grace period

_held: dict[Path, int] = {}  # folder -> descriptor of its lock file, open until this process ends


def acquire(folder: Path) -> None:
    """Lock a save folder until this process ends; repeated calls change nothing.

    If the file system does not support locks, log a warning and continue.
    """
    folder = folder.absolute()
    if folder in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TRAINING_LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        is_locked = _wait_for(descriptor, path)
    except OSError as error:
        logger.warning(f"{path} cannot be locked ({error}): make sure that no second training uses this folder")
        return
    if not is_locked:
        holder = _holder(path)
        os.close(descriptor)
        raise ValueError(
            f"Another training ({holder}) is saving to {folder}: wait for it, stop it, or use another --save-dir."
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    _held[folder] = descriptor


def _wait_for(descriptor: int, path: Path) -> bool:
    """Lock the file; wait if the holder is on another host, which may be the dead node that this job left."""
    deadline = time.monotonic() + OTHER_HOST_SECONDS
    while True:
        if try_lock(descriptor):
            return True
        holder = _holder(path)
        if holder.endswith(f" on {socket.gethostname()}") or time.monotonic() > deadline:
            return False
        logger.info(f"{path} is locked by {holder}: waiting")
        time.sleep(POLL_SECONDS)


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() or "of an unknown process"


def _let_go_in_child() -> None:
    """Release the lock in data-loader workers, which may outlive the training."""
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """Lock the save folder on rank 0, which saves; then call fairseq's `load_checkpoint`."""
    is_local = not PathManager.path_requires_pathmanager(cfg.save_dir)
    if trainer.data_parallel_rank == 0 and is_local and not cfg.no_save:
        acquire(Path(cfg.save_dir))
    return fairseqs(cfg, trainer, **options)
