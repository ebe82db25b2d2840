"""Trainings that outlive the sweep that started them (kill -9, a lost connection): the next sweep stops them.

They are then resumed from their last checkpoint. A run's lock file is held by its training and names the process of the
sweep that waits for it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from roberta_plugin.locks import holders, is_locked
from roberta_plugin.training.process import STOP_PATIENCE_S


def identity(pid: int | None) -> dict[str, Any]:
    """A process by host, number and start time, because numbers are used again; from Linux's /proc."""
    try:
        since = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        since = ""
    return {"host": socket.gethostname(), "pid": pid, "since": since}


def stop_orphan(lock: Path) -> bool:
    """Stop the processes that hold a lock if the sweep that started them is gone; return whether that was so.

    A training that a sweep waits for, or that runs on another machine, is left alone.
    """
    try:
        owner = json.loads(lock.read_bytes())
        is_orphan = owner["host"] == socket.gethostname() and owner != identity(owner["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not is_orphan or not is_locked(lock):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in holders(lock):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + STOP_PATIENCE_S
        while is_locked(lock) and time.monotonic() < deadline:
            time.sleep(0.05)
    return not is_locked(lock)
