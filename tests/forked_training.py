"""Commands in forks of one process that has imported fairseq: that import takes longer than a tiny training.

The plugin is not imported in that process, so each fairseq-train loads it by --user-dir, as a command of its own does.
Each leads a session of its own, and may be killed with all that it has started.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PROGRAM = """
import json, logging, os, sys
import fairseq_cli.train, torch._dynamo  # torch.optim imports the second when it is first used
assert "roberta_plugin" not in sys.modules

def start(request):
    child = os.fork()
    if child:
        return child
    os.setsid()
    for descriptor, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
        os.dup2(os.open(name, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    if os.path.basename(sys.argv[0]) == "roberta":
        logging.root.handlers.clear(), logging.root.setLevel(logging.WARNING)  # fairseq_cli.train has set both
        from roberta_plugin.cli import main
        sys.exit(main(sys.argv[1:]))
    sys.exit(fairseq_cli.train.cli_main())

for line in sys.stdin:
    children = [start(request) for request in json.loads(line)]
    print(json.dumps(children), flush=True)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


class ForkedTrainings:
    """Trainings that run at the same time; one such group at a time."""

    def __init__(
        self, commands: Sequence[Sequence[str]], *, cwd: Path, environment: Mapping[str, str], log: Path | None = None
    ) -> None:
        """Start the commands.

        Args:
            commands: each fairseq-train or roberta, and its arguments.
            cwd: their current folder.
            environment: their environment variables; those that torch reads when it is imported are the first call's.
            log: file that the output of all is appended to; None: `wait` returns it.
        """
        self.commands, self._server = commands, _running(cwd, environment)
        self._codes: list[int] | None = None
        self._folder = tempfile.TemporaryDirectory()
        common = {"cwd": str(cwd), "environment": dict(environment)}
        requests = []
        for number, command in enumerate(commands):
            files = {name: str(log or f"{self._folder.name}/{number}.{name}") for name in ("stdout", "stderr")}
            requests.append({**common, **files, "arguments": list(command)})
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(requests).encode() + b"\n")
        self._children = self._answer(timeout=200)
        assert self._children is not None

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return list(self._children or [])

    def codes(self, *, timeout: float = 0) -> list[int] | None:
        """The exit codes; None if the trainings do not end in so many seconds."""
        if self._codes is None:
            self._codes = self._answer(timeout=timeout)
        return self._codes

    def wait(self, timeout: float) -> list[subprocess.CompletedProcess[str]]:
        """Wait until all have ended.

        Raises:
            TimeoutExpired: if it takes longer than so many seconds; they are killed.
        """
        codes = self.codes(timeout=timeout)
        if codes is None:
            self.kill()
            raise subprocess.TimeoutExpired(list(self.commands[0]), timeout)
        results = []
        for number, (command, code) in enumerate(zip(self.commands, codes, strict=True)):
            paths = [Path(f"{self._folder.name}/{number}.{name}") for name in ("stdout", "stderr")]
            stdout, stderr = (path.read_text(errors="replace") if path.exists() else "" for path in paths)
            results.append(subprocess.CompletedProcess(list(command), code, stdout, stderr))
        self._folder.cleanup()
        return results

    def kill(self) -> None:
        """kill -9 of the trainings and all that they have started."""
        for child in self._children or []:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        assert self.codes(timeout=60) is not None

    def _answer(self, *, timeout: float) -> list[int] | None:
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], timeout)[0]:
            return None
        answer: Any = json.loads(self._server.stdout.readline())
        return list(answer)


class ForkedProcess:
    """A training of a sweep in such a fork, in the place of `roberta_plugin.training.process.TrainingProcess`."""

    def __init__(
        self, command: Sequence[str], *, log: Path, lock: int, environment: Mapping[str, str], **_: object
    ) -> None:
        log.touch()
        self.log_start, self._lock = log.stat().st_size, os.dup(lock)
        self._training = ForkedTrainings([command], cwd=Path.cwd(), environment={**os.environ, **environment}, log=log)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        codes = self._training.codes()
        if codes is None:
            return None
        self._unlock()
        return codes[0]

    def stop(self) -> None:
        """End it."""
        self._training.kill()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def run_forked(
    arguments: list[str], *, cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a fairseq-train or roberta to its end; see `ForkedTrainings`."""
    return ForkedTrainings([arguments], cwd=cwd, environment=environment).wait(timeout)[0]


_servers: list[subprocess.Popen[bytes]] = []


def _running(cwd: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The process that forks: one for the whole session."""
    if not _servers:
        server = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # what was read ahead would be hidden from select
        )
        atexit.register(_stop, server)
        _servers.append(server)
    return _servers[0]


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()
