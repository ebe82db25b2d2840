"""Commands in forks of one process that has imported what they import: that takes longer than a tiny training.

It has imported the plugin, and composed the configurations of most trainings. Where that is what a test is about, the
command is a fork of a process that has imported fairseq alone ("fairseq"): neither the plugin nor a command of fairseq, so
that fairseq-train loads the plugin by --user-dir, as a command of its own does, and no other command meets what is hung
into fairseq-train. So are the trainings that a command of `run_forked` starts (roberta finetune, sweep, study, pretrain),
as siblings of the command. Programs in Python (`run_python`) are such forks too; where their own import of fairseq matters, of a
process that has imported fairseq's packages only ("packages"), or of those only what it always needs ("torch").
Each leads a session of its own, and may be killed with all that it has started.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

REPOSITORY = str(Path(__file__).resolve().parent.parent)
PLUGIN = "plugin"
IMPORTS = {  # by the kind of the process that forks, itself a fork of the one before
    "torch": "import torch, tensorboardX, hydra, omegaconf",
    "packages": "import sacrebleu, sklearn.metrics, scipy.stats",
    # torch.optim imports torch._dynamo when it is first used
    "fairseq": "import fairseq.options, fairseq.trainer, fairseq.model_parallel.megatron_trainer, torch._dynamo",
    PLUGIN: f"import sys; sys.path[0] = {REPOSITORY!r}; import roberta_plugin, tests.configurations as configurations; "
    "configurations.remember_configurations(); configurations.compose_frequent_ones()",
}

# Each line is a file with a group of commands, whose processes and exit codes are noted in a file; or it is a FIFO, from which
# a fork that imports what its name says takes such lines.
PROGRAM = """
import atexit, gc, importlib, json, logging, os, select, stat, sys, threading, weakref

def start(command):
    child = os.fork()
    if child:
        return child
    os.setsid()
    for descriptor, name in enumerate((command["stdin"], command["stdout"], command["stderr"])):
        os.dup2(os.open(name, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["environment"])
    first = [] if os.environ.get("PYTHONSAFEPATH") else [""]
    sys.path[:1] = [*first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    program, *sys.argv = command["words"]
    try:
        run(program)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    # As Python ends, but for its walk through all objects, which takes longer than most of these commands.
    threading._shutdown(), atexit._run_exitfuncs(), sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)

def run(program):
    if program == "python":
        code = sys.argv[1]
        del sys.argv[1]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        return
    sys.argv.insert(0, program)
    if os.path.basename(program) == "roberta":
        if "TESTS_FORKS" in os.environ:
            from roberta_plugin.launch import process, run_folder
            sys.path.insert(0, REPOSITORY)
            from tests.forked_training import ForkedProcess
            del sys.path[0]
            process.TrainingProcess = run_folder.TrainingProcess = ForkedProcess
        from roberta_plugin.cli import main
        sys.exit(main(sys.argv[1:]))
    verb = os.path.basename(program).removeprefix("fairseq-").replace("-", "_")
    command = importlib.import_module(f"fairseq_cli.{verb}")
    if "roberta_plugin" in sys.modules:
        sys.modules["roberta_plugin"].register()  # with this command, as when it loads the plugin itself
    sys.exit(command.cli_main())

def serve(inbox):
    kind = os.path.basename(inbox)
    exec(IMPORTS[kind])
    assert kind == "plugin" or not {"roberta_plugin", "fairseq_cli"} & set(sys.modules)
    logging.root.handlers.clear(), logging.root.setLevel(logging.WARNING)  # as before these imports
    gc.collect(), gc.freeze()  # else every fork walks through all of this at its end, and copies the pages: 1.5 s each
    weakref.finalize._registry.clear()  # else every fork takes torch's operators apart at its end: 0.03 s each
    lines, rest, running = os.open(inbox, os.O_RDONLY), b"", {}
    while True:
        if select.select([lines], [], [], 0.01 if running else None)[0]:
            read = os.read(lines, 65536)
            if not read:
                return
            *paths, rest = (rest + read).split(b"\\n")
            for path in paths:
                running.update(answer(path))
        while running:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                break
            if child in running:  # no process that forks
                print(json.dumps([child, os.waitstatus_to_exitcode(status)]), file=running.pop(child), flush=True)

def answer(path):
    if stat.S_ISFIFO(os.stat(path).st_mode):
        if not os.fork():
            serve(os.fsdecode(path))
            os._exit(0)
        return {}
    group = json.loads(open(path).read())
    children = [start(command) for command in group["commands"]]
    events = open(group["events"], "w")
    print(json.dumps(children), file=events, flush=True)
    return dict.fromkeys(children, events)

serve(sys.argv[1])
"""


class Fork:
    """One of these commands, with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int, exit_codes: Callable[[], Mapping[int, int]]) -> None:
        self.pid = pid
        self._exit_codes = exit_codes

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._exit_codes().get(self.pid)

    def wait(self, timeout: float) -> int:
        """The exit code, after so many seconds at most.

        Raises:
            TimeoutExpired: if it has not ended by then.
        """
        _happens(lambda: self.poll() is not None, timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkedTrainings:
    """Commands that run at the same time."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        cwd: Path,
        environment: Mapping[str, str] | Sequence[Mapping[str, str]],
        log: Path | Sequence[Path] | None = None,
        fork_of: str = PLUGIN,
        stdin: str = "",
    ) -> None:
        """Start the commands.

        Args:
            commands: each a command of fairseq or roberta and its arguments; or python, -c, a program and
                its arguments.
            cwd: their current folder.
            environment: variables of all, or of each; those that torch reads when it is imported are the first call's.
            log: file that the output of all, or of each, is appended to; None: `wait` returns it.
            fork_of: kind of the process that forks, in `IMPORTS`.
            stdin: what all read from their standard input.
        """
        self.commands = commands
        self._folder = tempfile.TemporaryDirectory()
        (Path(self._folder.name) / "stdin").write_text(stdin)
        self._events = Path(self._folder.name) / "events"
        self._logs = [log] * len(commands) if log is None or isinstance(log, Path) else list(log)
        environments = [environment] * len(commands) if isinstance(environment, Mapping) else list(environment)
        group = []
        for number, words in enumerate(commands):
            files = {name: str(self._output(number, name)) for name in ("stdout", "stderr")}
            for path in files.values():
                Path(path).touch()
            files["stdin"] = f"{self._folder.name}/stdin"
            variables = dict(environments[number])
            group.append({**files, "cwd": str(cwd), "environment": variables, "words": [str(word) for word in words]})
        path = Path(self._folder.name) / "group.json"
        path.write_text(json.dumps({"commands": group, "events": str(self._events)}))
        _ask(_inbox(fork_of, cwd, environments[0]), path)
        assert _happens(lambda: bool(self._lines()), 200), "the process that forks did not answer"
        self.processes = [Fork(pid, self._ended) for pid in json.loads(self._lines()[0])]

    def codes(self, *, timeout: float = 0) -> list[int] | None:
        """The exit codes; None if they do not all end in so many seconds."""
        if not _happens(lambda: len(self._ended()) == len(self.processes), timeout):
            return None
        ended = self._ended()
        return [ended[process.pid] for process in self.processes]

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
            stdout, stderr = (self._output(number, name).read_text(errors="replace") for name in ("stdout", "stderr"))
            results.append(subprocess.CompletedProcess(list(command), code, stdout, stderr))
        return results

    def kill(self) -> None:
        """kill -9 of the commands and all that they have started."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert self.codes(timeout=60) is not None

    def _output(self, number: int, name: str) -> Path:
        return self._logs[number] or Path(self._folder.name) / f"{number}.{name}"

    def _lines(self) -> list[str]:
        text = self._events.read_text() if self._events.exists() else ""
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _ended(self) -> dict[int, int]:
        return dict(json.loads(line) for line in self._lines()[1:])


class ForkedProcess:
    """A training of a sweep in such a fork, in the place of `roberta_plugin.launch.process.TrainingProcess`."""

    def __init__(
        self, command: Sequence[str], *, log: Path, lock: int, environment: Mapping[str, str], **_: object
    ) -> None:
        log.touch()
        self.log_start, self._lock = log.stat().st_size, os.dup(lock)
        variables = {**os.environ, **environment}
        self._training = ForkedTrainings([command], cwd=Path.cwd(), environment=variables, log=log, fork_of="fairseq")
        self.pid = self._training.processes[0].pid

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        code = self._training.processes[0].poll()
        if code is not None:
            self._unlock()
        return code

    def stop(self) -> None:
        """End it."""
        self._training.kill()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def run_forked(
    arguments: list[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float,
    stdin: str = "",
    fork_of: str = PLUGIN,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end; see `ForkedTrainings`."""
    variables = forking(environment, cwd)
    forked = ForkedTrainings([arguments], cwd=cwd, environment=variables, stdin=stdin, fork_of=fork_of)
    return forked.wait(timeout)[0]


def forking(environment: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """The environment of a command of roberta whose trainings are forks, too: many load a copy of the plugin."""
    return {**environment, FORKS: str(_inbox("fairseq", cwd, environment))}


def run_python(
    program: str,
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float = 200,
    fork_of: str = "packages",
) -> subprocess.CompletedProcess[str]:
    """Run `python -c` to its end; by default it imports fairseq itself."""
    command = ["python", "-c", program, *arguments]
    return ForkedTrainings([command], cwd=cwd, environment=environment, fork_of=fork_of).wait(timeout)[0]


def _happens(event: Callable[[], bool], timeout: float) -> bool:
    """Whether something happens in so many seconds."""
    deadline = time.monotonic() + timeout
    while not event():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


FORKS = "TESTS_FORKS"  # in a command's environment: where its own trainings are asked for
_OF_PATH = ("PYTHONPATH", "PYTHONSAFEPATH")  # taken over by each fork
_shared: list[str] = []  # the folder of the FIFOs, if another process of this test run has made it
_started: list[subprocess.Popen[bytes]] = []


def share_servers(folder: str) -> None:
    """Ask the processes that fork for another process, a worker of pytest-xdist for its controller."""
    _shared.append(folder)


@functools.cache
def folder_of_servers() -> str:
    """The folder with the FIFO of each process that forks, which ends with the last process that holds it open."""
    folder = _shared[-1] if _shared else tempfile.mkdtemp()
    for kind in IMPORTS:
        if not _shared:
            os.mkfifo(f"{folder}/{kind}")
        os.open(f"{folder}/{kind}", os.O_RDWR)
    if not _shared:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _inbox(kind: str, cwd: Path, environment: Mapping[str, str]) -> Path:
    """The FIFO of the process that forks, which the first to need it starts: one of each kind for the whole session."""
    if FORKS in os.environ:
        return Path(os.environ[FORKS])
    inbox = Path(folder_of_servers()) / kind
    try:
        (inbox.parent / f"{kind}.started").touch(exist_ok=False)
    except FileExistsError:
        return inbox
    kinds = list(IMPORTS)
    if kind != kinds[0]:
        _ask(_inbox(kinds[kinds.index(kind) - 1], cwd, environment), inbox)
        return inbox
    variables = {name: value for name, value in environment.items() if name not in _OF_PATH}
    program = PROGRAM.replace("IMPORTS", repr(IMPORTS)).replace("REPOSITORY", repr(REPOSITORY))
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    _started.append(subprocess.Popen([sys.executable, "-c", program, str(inbox)], cwd=cwd, env=variables, **quiet))
    return inbox


def _ask(inbox: Path, path: Path) -> None:
    with open(inbox, "ab", buffering=0) as file:
        file.write(f"{path}\n".encode())  # so short that those of several processes do not mix
