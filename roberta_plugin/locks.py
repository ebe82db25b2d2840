"""Locks on files that end with the processes that hold them (flock); a child inherits them with the descriptor."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)

TRAINING_LOCK = "training.lock"  # in a folder of checkpoints, held by the rank 0 that saves there


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process and its children; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked_by_us(descriptor: int, path: Path) -> bool:
    """Lock an open file or folder, unless another process holds it or has renamed it; True where there are no locks."""
    try:
        return try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
    except OSError:  # a file system without locks
        return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file as `try_lock` does, but wait for a process that holds it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Hold the lock of a file to be written, once no other process does; without one where there are no locks."""
    with open(path.with_name(f".{path.name}.lock"), "wb") as lock:
        try:
            wait_for_lock(lock.fileno())
        except OSError as error:
            logger.info(f"{path.parent} has no file locks ({error.strerror}): {path.name} may be written twice")
        yield


@contextmanager
def only_process(folder: Path, refusal: str, *, patience_s: float = 0.0) -> Iterator[int]:
    """Hold FOLDER/.lock for this process and those that it starts; yields the descriptor.

    Raises:
        ValueError: `refusal`, if another process holds it for longer than `patience_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as file:  # its time stays
        deadline = time.monotonic() + patience_s
        while not try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise ValueError(refusal)
            time.sleep(0.2)
        yield file.fileno()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock; False if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holders(path: Path) -> list[int]:
    """The processes of this machine that have the file open."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(os.path.exists(entry) and os.path.samefile(entry, path) for entry in folder.iterdir()):
                processes.append(int(folder.parent.name))
    return processes


def ended_training(save_dir: Path) -> str:
    """The training that last locked a folder of checkpoints, if it has ended; empty if alive or unknown.

    Unknown on another machine: not every file system shares locks between machines.

    Example: "process 4711 on node1".
    """
    path = save_dir / TRAINING_LOCK
    try:
        holder = path.read_text(encoding="utf-8", errors="replace").strip()
        is_known = holder.endswith(f" on {socket.gethostname()}") and not is_locked(path)
    except OSError:  # no such file, or a file system without locks
        return ""
    return holder if is_known else ""
