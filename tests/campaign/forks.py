"""Commands run in forks of a process that has imported everything already: they start at once, and die as any process."""

from __future__ import annotations

import io
import json
import logging
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.tiny_corpus import environment

TIMEOUT_S = 180.0
MEMORY_BYTES = 8 * 2**30
HANG, CRASH = -1000, -2000


@dataclass(frozen=True)
class Outcome:
    """How a command in a child ended."""

    code: int
    output: str


def preload() -> None:
    """Import what all commands need."""
    os.environ.update(environment())
    import fairseq_cli.train  # noqa: F401

    import roberta_plugin
    import roberta_plugin.cli
    import roberta_plugin.experiments.inference
    import roberta_plugin.hub

    roberta_plugin.register()


def fork(main: Callable[[], int], output: Path) -> int:
    """Start `main` in a process group of its own, with its output in a file; return the process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        torch.set_num_threads(1)  # OpenMP's threads of the parent do not live here, and waiting for them never ends
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(os.fdopen(number, "wb", 0, closefd=False), write_through=True) for number in (1, 2)
        )
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True)
        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code or 0)


def in_child(main: Callable[[], int], folder: Path) -> Outcome:
    """Run `main` in a fork, with limits on time and memory, its output in a file of the folder."""
    path = folder / "output.txt"

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        return main()

    child = Fork(fork(limited, path))
    deadline = time.monotonic() + TIMEOUT_S
    while (code := child.poll()) is None:
        if time.monotonic() > deadline:
            child.kill()
            return Outcome(HANG, path.read_text(errors="replace"))
        time.sleep(0.005)
    return Outcome(CRASH if code < 0 else code, path.read_text(errors="replace"))


def note_synced(path: Path) -> None:
    """From now on add to a file: the inode, size and time of each file that this process syncs."""
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        about = os.fstat(descriptor)
        with path.open("a") as file:
            file.write(json.dumps([about.st_ino, about.st_size, about.st_mtime_ns]) + "\n")

    os.fsync = noted  # type: ignore[assignment]


class Fork:
    """A forked process, to ask and to kill."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Exit code, minus the signal if one ended it, None while it runs."""
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """SIGKILL to its process group, whether it has ended or not."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.001)


def start_command(arguments: Sequence[str], folder: Path, output: Path, *, synced: Path | None = None) -> Fork:
    """Start `roberta ...` or `fairseq-train ...` in a folder; note in `synced` which files it has synced."""

    def main() -> int:
        os.chdir(folder)
        if synced is not None:
            note_synced(synced)
        sys.argv = list(arguments)
        if Path(arguments[0]).name == "fairseq-train":
            import fairseq_cli.train

            fairseq_cli.train.cli_main()
            return 0
        from roberta_plugin.cli import main as roberta_main

        return roberta_main(list(arguments[1:]))

    return Fork(fork(main, output))
