"""Fault 10: two trainings at once in one save folder."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from roberta_plugin.fairseq_workarounds.training_loop import wrap
from roberta_plugin.locks import try_lock

logger = logging.getLogger(__name__)

LOCK_FILE = "training.lock"
POLL_SECONDS = 2.0
OTHER_HOST_SECONDS = 120.0  # a file server may keep the lock of a node that has died for its grace period

_held: dict[Path, int] = {}  # folder -> descriptor of its lock file, open for as long as this process lives


def acquire(folder: Path) -> None:
    """Lock a save folder for the rest of this process, whose death releases it; again changes nothing.

    Where the file system has no locks, a warning says so and training goes on.

    Raises:
        ValueError: if another training holds the folder.
    """
    folder = folder.absolute()
    if folder in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        is_locked = _wait_for(descriptor, path)
    except OSError as error:
        logger.warning(f"{path} cannot be locked ({error}): see to it yourself that no second training uses the folder")
        return
    if not is_locked:
        holder = _holder(path)
        os.close(descriptor)
        raise ValueError(
            f"Another training ({holder}) is saving to {folder}: wait for its end, stop it, or give another --save-dir."
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    _held[folder] = descriptor


def _wait_for(descriptor: int, path: Path) -> bool:
    """Lock the file; wait where the holder is on another host, for it may be a dead one that a job was moved from."""
    deadline = time.monotonic() + OTHER_HOST_SECONDS
    while True:
        if try_lock(descriptor):
            return True
        holder = _holder(path)
        if holder.endswith(f" on {socket.gethostname()}") or time.monotonic() > deadline:
            return False
        logger.info(f"{path} is locked by {holder}: waiting for its end")
        time.sleep(POLL_SECONDS)


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() or "of an unknown process"


def _let_go_in_child() -> None:
    """A data-loader worker that outlives its training must not keep the lock."""
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's, once the save folder is ours: rank 0 is the one that saves."""
    is_local = not PathManager.path_requires_pathmanager(cfg.save_dir)
    if trainer.data_parallel_rank == 0 and is_local and not cfg.no_save:
        acquire(Path(cfg.save_dir))
    return fairseqs(cfg, trainer, **options)


def install() -> None:
    """Lock the save folder before a checkpoint is looked for in it."""
    wrap(checkpoint_utils, "load_checkpoint", load_checkpoint)
