"""`fairseq-train` in forks of one process that has imported fairseq: that import takes longer than a tiny training.

The plugin is not imported in that process, so each training loads it by --user-dir, as a command of its own does.
"""

from __future__ import annotations

import atexit
import json
import select
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import json, os, sys
import fairseq_cli.train, torch._dynamo  # torch.optim imports the second when it is first used
assert "roberta_plugin" not in sys.modules
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        for descriptor, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
            os.dup2(os.open(name, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT), descriptor)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = request["arguments"]
        sys.exit(fairseq_cli.train.cli_main())
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
"""


def run_forked(
    arguments: list[str], *, cwd: Path, environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a fairseq-train to its end.

    Args:
        arguments: the command and its arguments.
        cwd: its current folder.
        environment: its environment variables; those that torch reads when it is imported are the first call's.
        timeout: seconds.

    Raises:
        TimeoutExpired: if it takes longer.
    """
    server = _running(cwd, environment)
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        files = {name: f"{folder}/{name}" for name in ("stdout", "stderr")}
        request = {**files, "cwd": str(cwd), "environment": environment, "arguments": arguments}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout)[0]:
            _stop(_servers.pop())
            raise subprocess.TimeoutExpired(arguments, timeout)
        code = json.loads(server.stdout.readline())
        stdout, stderr = (Path(path).read_text(errors="replace") for path in files.values())
    return subprocess.CompletedProcess(arguments, code, stdout, stderr)


_servers: list[subprocess.Popen[str]] = []


def _running(cwd: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """The process that forks: one for the whole session."""
    if not _servers:
        server = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(_stop, server)
        _servers.append(server)
    return _servers[0]


def _stop(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
