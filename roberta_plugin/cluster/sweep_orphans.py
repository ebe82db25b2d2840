"""Trainings that outlive the sweep that started them (kill -9, a lost connection): the next sweep stops them.

They go on from their last checkpoint then. A run's lock file is held by its training, and names the process of the
sweep that waits for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 10.0


def identity(pid: int | None) -> dict[str, Any]:
    """A process, by more than its number, which another one may get later; from Linux's /proc."""
    try:
        since = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        since = ""
    return {"host": socket.gethostname(), "pid": pid, "since": since}


def stop_orphan(lock: Path) -> bool:
    """End the processes that hold a lock, if the sweep that has started them is gone; whether there were such.

    A training that somebody waits for, or that runs on another machine, is left alone.
    """
    try:
        owner = json.loads(lock.read_bytes())
        is_orphan = owner["host"] == socket.gethostname() and owner != identity(owner["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not is_orphan or not is_locked(lock):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _holders(lock):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + PATIENCE_S
        while is_locked(lock) and time.monotonic() < deadline:
            time.sleep(0.05)
    return not is_locked(lock)


def is_locked(lock: Path) -> bool:
    """Whether a process holds the lock."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holders(path: Path) -> list[int]:
    """The processes that have a file open."""
    found = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(os.path.exists(entry) and os.path.samefile(entry, path) for entry in folder.iterdir()):
                found.append(int(folder.parent.name))
    return found
