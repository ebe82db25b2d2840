"""A command run as a child: its output kept in a file and read line by line; it never outlives us.

Used by `training.py`. If we are killed, the kernel ends the child too (Linux); the run folder's lock, which the child
inherits, keeps a second training away as long as the first one lives, on every system.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

STOP_PATIENCE_S = 30.0  # fairseq-train may be saving a checkpoint
TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: not between fork and exec


def lines_of(
    command: list[str], *, log: Path, environment: Mapping[str, str], descriptor: int
) -> Generator[str, None, None]:
    """Run `command`, append its output to `log`, and give each line; closing the iterator stops the command.

    Args:
        command: program and arguments.
        log: file that keeps stdout and stderr.
        environment: variables set for the command besides our own.
        descriptor: an open file that the command inherits (the run folder's lock).

    Raises:
        ChildProcessError: if the command fails; the message has the end of its output.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        preexec_fn=_end_with_parent,
        pass_fds=[descriptor],
    )
    assert process.stdout is not None
    try:
        with open(log, "a", encoding="utf-8", buffering=1) as file:
            for line in process.stdout:
                file.write(line)
                yield line
        if process.wait() != 0:
            raise failure(f"{Path(command[0]).name} failed (exit code {process.returncode})", log)
    finally:
        _stop(process)


def failure(what: str, log: Path) -> ChildProcessError:
    """The error for a command that went wrong, with the end of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    end = "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])
    return ChildProcessError(f"{what}. The whole log is {log}; it ends:\n{end}")


def _end_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
