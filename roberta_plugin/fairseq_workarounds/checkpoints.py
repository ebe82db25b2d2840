"""Faults 1, 2, 3, 10, 11 and 12: checkpoints that fairseq cuts off, ruins, cannot load, loads although damaged, or
overwrites from two trainings at once.
"""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import pickle
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager

from roberta_plugin.checkpoint_files import (
    REMEDY,
    check_checkpoint,
    check_claims,
    explain_refusal,
    fault_of,
    lock_unfinished,
    remove_unfinished,
    unlisted_class,
)
from roberta_plugin.fairseq_workarounds.saved_state import check_options
from roberta_plugin.files import atomic_write
from roberta_plugin.locks import TRAINING_LOCK, try_lock
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.models.sharing import joined

logger = logging.getLogger(__name__)

RETRY_AFTER = (1, 2, 4, 8, 15, 30)  # seconds; a minute in all, half of the grace period that jobs request from SLURM
# Temporary errors of a disk or file server. Others (no permission, no such folder, a limit) are final.
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN}

POLL_SECONDS = 2.0
OTHER_HOST_SECONDS = 120.0  # a file server may keep a dead node's lock for a grace period

_held: dict[Path, int] = {}  # folder -> descriptor of its lock file, open until this process ends


def torch_persistent_save(fairseqs: Callable[..., None], obj: Any, filename: str, async_write: bool = False) -> None:
    """Write a checkpoint by `save_whole`, or by fairseq where a file cannot be renamed."""
    if async_write or not PathManager.supports_rename(filename):
        fairseqs(obj, filename, async_write)
    else:
        save_whole(obj, filename)


def save_whole(obj: Any, filename: str) -> None:
    """Write a checkpoint so that `filename` is always either the old file or the whole new one; see fault 11.

    Each attempt writes a fresh temporary file and compares its checksums before the rename.

    Raises:
        OSError: if it cannot be written; temporary errors are retried for a minute.
    """
    sharing = saved_options(obj)[1].get("share_layers") or "none"
    content = obj if sharing == "none" else {**obj, "model": joined(obj["model"], share_layers=sharing)}

    def write(file: IO[bytes]) -> None:
        torch.save(content, file)
        file.flush()
        fault = fault_of(file.name)
        if fault is not None:
            raise OSError(errno.EIO, f"the written file cannot be read back: {fault}")

    _write_patiently(Path(filename), write)


def save_once(fairseqs: Callable[..., None], obj: Any, stream: IO[bytes]) -> None:
    """Write a checkpoint to a stream that cannot be rewound, in one attempt; fairseq's `_torch_persistent_save`."""
    torch.save(obj, stream)


def atomic_copy(fairseqs: Callable[..., Any], src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """Copy a file so that `dst_path` is always either the old file or the whole new one.

    Returns the same as fairseq's `PathManager.copy`; see fault 3. On XFS and Btrfs the two files share their
    blocks. A hard link would be as fast everywhere, but writing into one name, as `cp other.pt checkpoint_last.pt`
    does, would change both.
    """
    if PathManager.path_requires_pathmanager(dst_path):
        return bool(fairseqs(src_path, dst_path, overwrite))
    if not overwrite and os.path.exists(dst_path):
        raise FileExistsError(f"Refusing to copy {src_path} over the existing file {dst_path}: pass overwrite=True.")

    def write(file: IO[bytes]) -> None:
        with open(src_path, "rb") as source:
            _copy_within_the_kernel(source.fileno(), file.fileno())
            shutil.copyfileobj(source, file, 16 * 2**20)  # the rest: everything or nothing
            file.flush()
            missing = os.fstat(source.fileno()).st_size - os.fstat(file.fileno()).st_size
        if missing:
            raise OSError(errno.EIO, f"{missing} bytes of the copy are missing")

    _write_patiently(Path(dst_path), write)
    return True


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """Remove unfinished files of earlier runs, then call fairseq's `load_checkpoint`, the start of every training."""
    if trainer.data_parallel_rank == 0 and os.path.isdir(cfg.save_dir):
        for name in remove_unfinished(Path(cfg.save_dir)):
            logger.info("Removed %s from %s: an earlier run was stopped while it wrote that file.", name, cfg.save_dir)
    return fairseqs(cfg, trainer, **options)


def allow_namespaces() -> None:
    """Let torch load `argparse.Namespace` from checkpoints; see fault 1."""
    torch.serialization.add_safe_globals([argparse.Namespace])


def broadcast_object(
    fairseqs: Callable[..., Any], obj: Any, src_rank: int, group: object, dist_device: torch.device
) -> Any:
    """Send `obj` from rank `src_rank` to all ranks of the group, in fairseq's format; see fault 2."""
    if distributed_utils.get_rank(group) == src_rank:
        return fairseqs(obj, src_rank, group, dist_device)
    length = torch.zeros(1, dtype=torch.int64, device=dist_device)
    distributed_utils.broadcast(length, src=src_rank, group=group)
    data = torch.empty(int(length), dtype=torch.uint8, device=dist_device)
    distributed_utils.broadcast(data, src=src_rank, group=group)
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), map_location="cpu", weights_only=False)


def load_checked(
    fairseqs: Callable[..., dict[str, Any]],
    path: str,
    arg_overrides: dict[str, Any] | None = None,
    load_on_all_ranks: bool = False,
) -> dict[str, Any]:
    """Check a checkpoint's checksums, then load it as fairseq's `load_checkpoint_to_cpu`; see fault 12.

    Raises:
        UnpicklingError: if it holds objects that could run code.
        OSError: if the file does not exist or cannot be read.
    """
    if not PathManager.path_requires_pathmanager(path):
        check_checkpoint(path)
    try:
        state: dict[str, Any] = fairseqs(path, arg_overrides, load_on_all_ranks)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch.load and fairseq's upgrade of old layouts raise errors of any class
        kind = ValueError if unlisted_class(error) is None else pickle.UnpicklingError
        raise kind(f"{explain_refusal(path, error)} {REMEDY}") from error
    if not PathManager.path_requires_pathmanager(path):
        check_claims(path, state)
    check_options(state.get("cfg"), path)
    return state


def _write_patiently(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write `path` by `write`; retry temporary errors for a minute."""
    for wait in (*RETRY_AFTER, None):
        try:
            with atomic_write(path) as file:
                lock_unfinished(file.fileno())
                write(file)
            return
        except Exception as error:
            cause = _system_error(error)
            if cause is None:
                raise
            if wait is None or cause.errno not in _PASSING:
                raise OSError(cause.errno, _explain(path, cause)) from error
            logger.warning("Cannot write %s: %s. Trying again in %d s.", path, _in_words(cause), wait)
        time.sleep(wait)


def _copy_within_the_kernel(source: int, target: int) -> None:
    """Let the file system copy as much as it can; both descriptors end where the rest begins."""
    left = os.fstat(source).st_size
    try:
        while left and (copied := os.copy_file_range(source, target, left)):
            left -= copied
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def _system_error(error: BaseException | None) -> OSError | None:
    """The error of the operating system behind an exception: torch.save raises a RuntimeError while it handles one."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _in_words(cause: OSError) -> str:
    return cause.strerror or str(cause)


def _explain(path: Path, cause: OSError) -> str:
    tried = f" for {sum(RETRY_AFTER)} s" if cause.errno in _PASSING else ""
    try:
        free = f" ({shutil.disk_usage(path.parent).free / 1e6:,.0f} MB are free there)"
    except OSError:
        free = ""
    return (
        f"The checkpoint {path} cannot be written{tried}: {_in_words(cause)}{free}. Earlier checkpoints are untouched. "
        "Free some space or fix the cause, and run the same command again: it resumes from the last checkpoint."
    )


def lock_save_dir(folder: Path) -> None:
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


def lock_and_load(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """Lock the save folder on rank 0, which saves; then call fairseq's `load_checkpoint`."""
    is_local = not PathManager.path_requires_pathmanager(cfg.save_dir)
    if trainer.data_parallel_rank == 0 and is_local and not cfg.no_save:
        lock_save_dir(Path(cfg.save_dir))
    return fairseqs(cfg, trainer, **options)
