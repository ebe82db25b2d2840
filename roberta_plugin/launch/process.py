"""Starts a fairseq-train process with variables for trackers, follows its output, and stops it in order.

Sweeps and the demo start their trainings here. The training inherits the lock of its run folder, which refuses a second
one while any of its processes lives, even if we are killed.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from roberta_plugin.launch.log import last_lines
from roberta_plugin.locks import holders, is_locked, process_identity
from roberta_plugin.machine import SPIN_COUNT

STOP_PATIENCE_S = 30.0  # fairseq-train may be saving a checkpoint
_POLL_S = 0.05
_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: not between fork and exec


def train_program() -> list[str]:
    """The fairseq-train of this environment."""
    script = Path(sys.executable).parent / "fairseq-train"
    return [str(script)] if script.is_file() else [sys.executable, "-m", "fairseq_cli.train"]


def tracker_variables(
    folder: Path, *, name: str | None = None, group: str | None = None, user: Collection[str]
) -> dict[str, str]:
    """Variables of Weights & Biases for the run in `folder` (absolute), but for those that the user has set, by name.

    Every process that trains gets them, whether it tracks (--wandb-project) or not. Without them fairseq calls each run
    by the last folder of --save-dir, which is always `checkpoints`, and a restart begins a new one.
    The id is a hash of the folder: whatever trains there continues one run. `name` is the folder's by default; `group`
    is what the runs of a sweep have in common.
    """
    variables = {
        "WANDB_NAME": name or folder.name,
        "WANDB_RUN_ID": hashlib.sha256(bytes(folder)).hexdigest()[:16],
        "WANDB_RESUME": "allow",
    }
    if group:
        variables["WANDB_RUN_GROUP"] = group
    return {variable: value for variable, value in variables.items() if variable not in user}


def variables_shown(variables: Mapping[str, str], arguments: Sequence[str]) -> str:
    """The variables as a shell's prefix of a command; empty if its `arguments` do not start a tracker."""
    if not any(argument.partition("=")[0] == "--wandb-project" for argument in arguments):
        return ""
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())


class TrainingProcess:
    """A running command that appends its output to a log.

    It leads a separate session: Ctrl-C reaches only us, and we stop it in order.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        lock: int,
        environment: Mapping[str, str],
        ends_with_parent: bool = False,
    ) -> None:
        """Start the command.

        `log` keeps stdout and stderr. `lock` is the descriptor of a locked file, which the command inherits;
        `environment` is added to ours. With `ends_with_parent`, the kernel stops it if we are killed (Linux).
        """
        with open(log, "ab") as file:
            self.log_start = file.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={"GOMP_SPINCOUNT": SPIN_COUNT, **os.environ, **environment},
                pass_fds=[lock],
                start_new_session=True,
                preexec_fn=_end_with_parent if ends_with_parent else None,
            )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code; None while the command runs. Remaining processes of an ended command are killed."""
        exit_code = self._process.poll()
        if exit_code is not None:
            self._kill_session()
        return exit_code

    def stop(self) -> None:
        """Ask the command to end; kill it and its processes after STOP_PATIENCE_S.

        May be called from a signal handler while `poll` is being executed: hence nothing here takes Popen's lock.
        """
        if self._process.returncode is not None:
            return
        if not self._has_ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        self._wait(STOP_PATIENCE_S)
        self._kill_session()
        self._wait(STOP_PATIENCE_S)
        self._process.poll()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # and has been waited for
            return True

    def _kill_session(self) -> None:
        """Kill the rest of the session: data workers, one process per GPU."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def lines_of(
    command: Sequence[str], *, log: Path, lock: int, environment: Mapping[str, str]
) -> Generator[str, None, None]:
    """Run a command to its end and yield the lines of its output; closing the generator stops the command.

    `lock` is the descriptor of a locked file, which the command inherits; `environment` is added to ours.

    Raises:
        ChildProcessError: if the command fails; the message has the end of its output.
    """
    process = TrainingProcess(command, log=log, lock=lock, environment=environment, ends_with_parent=True)
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            file.seek(process.log_start)
            line = ""
            while True:
                exit_code = process.poll()  # checked first, so that output written before the end is read below
                while part := file.readline():
                    line += part
                    if line.endswith("\n"):
                        yield line
                        line = ""
                if exit_code is not None:
                    break
                time.sleep(_POLL_S)
        if line:
            yield line
        if exit_code != 0:
            raise failure(f"{Path(command[0]).name} failed (exit code {exit_code})", log)
    finally:
        process.stop()


def failure(what: str, log: Path) -> ChildProcessError:
    """The error for a command that went wrong, with the end of its log."""
    end = "\n".join(f"    {line}" for line in last_lines(log, _TAIL_LINES))
    return ChildProcessError(f"{what}. The whole log is {log}; it ends:\n{end}")


def _end_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_orphan(lock: Path) -> bool:
    """Stop a training that outlived the sweep that started it (kill -9, a lost connection); return whether it was one.

    Its lock file names the process of the sweep. A training that a sweep waits for, or that runs on another machine, is
    left alone.
    """
    try:
        owner = json.loads(lock.read_bytes())
        is_orphan = owner["host"] == socket.gethostname() and owner != process_identity(owner["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not is_orphan or not is_locked(lock):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in holders(lock):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        wait_for_release(lock)
    return not is_locked(lock)


def wait_for_release(lock: Path) -> None:
    """Wait until the stopped processes of a training are gone."""
    deadline = time.monotonic() + STOP_PATIENCE_S
    while is_locked(lock) and time.monotonic() < deadline:
        time.sleep(0.01)
