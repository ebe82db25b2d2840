"""One run of a sweep: its folder, its state, its training, and the checkpoints that are kept.

    CELL/seed-N/ run.json       what it is: cell, seed, settings, arguments of fairseq-train, the sweep's folder
                 log.txt        output of fairseq-train, of all attempts
                 checkpoints/   a stopped run resumes from the last one
                 result.json    the metric: the run is done
                 outputs/       raw outputs of its checkpoint, which is then no longer needed (`stored_outputs.py`)
                 failure.json   why the last attempt failed
                 lock           held by fairseq-train for as long as it lives; names the sweep that started it

Local processes and SLURM jobs use the same code; only `local.py` and `slurm.py` know the difference.

A run writes its best and its last checkpoint, each with Adam's state, three times the size of the weights: a grid of
large models would fill a disk. A finished run needs neither, because its result is in result.json and the weights of
its best checkpoint serve evaluation; a run that is not done keeps everything, to resume from it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.checkpoint_files import lock_unfinished, remove_unfinished
from roberta_plugin.experiments.sweeps.grid import Grid, Metric, Run, finite
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.log import lines_of, parse_line
from roberta_plugin.launch.process import STOP_PATIENCE_S, TrainingProcess, train_program
from roberta_plugin.locks import holders, is_locked, try_lock
from roberta_plugin.record import differences, moved, option_name, options_of, refuse

OUTPUTS = "outputs"
POLL_S = 0.2
_TAIL_LINES = 8
_SEARCHED_BYTES = 200_000  # of the log's end, for the exception
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception|Exit|Interrupt)\b(?:: .*)?$")
_OPTIMIZER = "last_optimizer_state"
DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "waiting"


class RunFolder:
    """A run and the folder it lies in."""

    def __init__(self, root: Path, run: Run, metric: Metric) -> None:
        self.run, self.metric, self.root = run, metric, root
        self.path = root / run.name
        self.code: Path | None = None  # of a snapshot (`snapshot.py`); None: the code that runs now

    def check(self, named: Callable[[str], str] = option_name) -> None:
        """Refuse a folder that holds another run. The sweep may have been moved, with its data beside it.

        `named` is how the user gives an option of fairseq-train (`record.differences`).
        """
        known = self._read("run.json", "cell")
        if known is None:
            return
        from roberta_plugin.fairseq_workarounds.removed_options import without_removed

        now = self.run.arguments
        before = [
            argument if argument in now else moved(argument, before=known.get("sweep"), now=self.root)
            for argument in without_removed(known.get("arguments", []))
        ]
        refuse(
            f"{self.path} holds a run with other options",
            differences(options_of(before), options_of(now), named=named),
            "(Its run.json says so.) Give another --output-dir, or delete that one if the run is not needed any more.",
        )

    def prepare(self) -> None:
        """Make the folder and write run.json; read the metric again if the grid file has another one now."""
        self.path.mkdir(parents=True, exist_ok=True)
        about = {"cell": self.run.cell, "seed": self.run.seed, "settings": dict(self.run.settings)}
        self._write("run.json", {**about, "arguments": list(self.run.arguments), "sweep": str(self.root)})
        result = self.result()
        if result is not None and result.get("metric") != asdict(self.metric):
            (self.path / "result.json").unlink()
            self.finish(exit_code=0, seconds=float(result.get("seconds", 0)))

    def state(self) -> str:
        """One of done, running (here or elsewhere), failed and waiting."""
        return state_of(self.path)

    def result(self) -> dict[str, Any] | None:
        """The content of result.json: `value`, `num_updates`, `seconds`; None before the run is done."""
        return self._read("result.json", "value")

    def failure(self) -> dict[str, Any] | None:
        """The content of failure.json: `reason`, `exit_code`, `attempts`."""
        return self._read("failure.json")

    def checkpoint(self) -> Path | None:
        """The checkpoint that the metric is about: the best one, if it is there, or the last one."""
        names = ("checkpoint_best.pt", "checkpoint_last.pt") if self.metric.at == "best" else ("checkpoint_last.pt",)
        paths = [self.path / "checkpoints" / name for name in names]
        return next((path for path in paths if path.is_file()), None)

    def start(self, environment: Mapping[str, str] | None = None) -> Attempt | None:
        """Start fairseq-train; None if another process trains this run."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not try_lock(lock):
                return None
            shutil.rmtree(self.path / OUTPUTS, ignore_errors=True)  # of an earlier training
            os.ftruncate(lock, 0)
            os.write(lock, json.dumps(identity(os.getpid())).encode())
            process = TrainingProcess(
                [*train_program(), *self.run.arguments_in(self.path, self.metric, code=self.code)],
                log=self.path / "log.txt",
                lock=lock,
                environment={**self._code_environment(), **(environment or {})},
            )
        finally:
            os.close(lock)  # the training holds it now
        return Attempt(self, process)

    def _code_environment(self) -> dict[str, str]:
        """Variables by which fairseq-train imports this package from the snapshot, and not from the working folder."""
        if self.code is None:
            return {}
        path = os.pathsep.join(filter(None, [str(self.code), os.environ.get("PYTHONPATH", "")]))
        return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def finish(self, *, exit_code: int, seconds: float, log_start: int = 0) -> str:
        """Write result.json, or failure.json with the reason; return the state.

        The attempt begins at byte `log_start` of log.txt.
        """
        about: dict[str, Any] = {"exit_code": exit_code, "seconds": round(seconds, 1), "attempts": self._attempts()}
        about["metric"] = asdict(self.metric)
        try:
            if exit_code != 0:
                exception = last_exception(self.log_lines(start=log_start, most=_SEARCHED_BYTES))
                why = f": {exception}" if exception else ""
                raise ValueError(f"fairseq-train ended with exit code {exit_code}{why}")
            value = self._read_metric()
        except (ValueError, OSError) as error:
            log_ends = self.log_lines()[-_TAIL_LINES:]
            self._write("failure.json", {"reason": str(error), **about, "log_ends": log_ends})
            return FAILED
        self._write("result.json", {**value, **about})
        (self.path / "failure.json").unlink(missing_ok=True)
        return DONE

    def _read_metric(self) -> dict[str, Any]:
        if self.metric.file:
            path = self.path / self.metric.file
            value: Any = json.loads(path.read_text(encoding="utf-8"))
            for name in self.metric.value.split("."):
                value = value.get(name) if isinstance(value, dict) else None
            if finite(value) is None:
                raise ValueError(f"{path} has no finite number {self.metric.value} (it has {value!r})")
            return {"value": finite(value)}
        return metric_in_log(self.log_lines(), self.metric)

    def log_lines(self, *, start: int = 0, most: int | None = None) -> list[str]:
        """The lines of log.txt from byte `start` on, at most the last `most` bytes; empty before there is a log."""
        return lines_of(self.path / "log.txt", start=start, most=most)

    def fail(self, reason: str) -> None:
        """Write failure.json for an attempt that never started fairseq-train."""
        self._write("failure.json", {"reason": reason, "exit_code": None, "attempts": self._attempts(), "log_ends": []})

    def _attempts(self) -> int:
        """Attempts, with the present one."""
        return int((self.failure() or {"attempts": 0})["attempts"]) + 1

    def checkpoints(self) -> list[Path]:
        """All of its checkpoints."""
        return sorted((self.path / "checkpoints").glob("checkpoint*.pt"))

    def _read(self, name: str, *keys: str) -> dict[str, Any] | None:
        remedy = "delete it and run the command again; the run resumes from its checkpoints"
        return read_json(self.path / name, keys=keys, remedy=remedy)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_json(self.path / name, content)


def run_folders(grid: Grid, root: Path) -> list[RunFolder]:
    """The folders of all runs of a grid, in its order."""
    return [RunFolder(root, run, grid.metric) for run in grid.runs]


def state_of(folder: Path) -> str:
    """The state of the run in a folder: done, running (here or elsewhere), failed or waiting."""
    if (folder / "result.json").is_file():
        return DONE
    if is_locked(folder / "lock"):
        return RUNNING
    return FAILED if (folder / "failure.json").is_file() else WAITING


class Attempt:
    """A running fairseq-train of a run."""

    def __init__(self, folder: RunFolder, process: TrainingProcess) -> None:
        self.folder, self.process = folder, process
        self._started = time.monotonic()

    def poll(self) -> str | None:
        """None while it runs; then the state that it leaves the run in."""
        exit_code = self.process.poll()
        if exit_code is None:
            return None
        _wait_for_release(self.folder.path / "lock")
        seconds = time.monotonic() - self._started
        return self.folder.finish(exit_code=exit_code, seconds=seconds, log_start=self.process.log_start)

    def wait(self) -> str:
        """The state that it leaves the run in."""
        while (state := self.poll()) is None:
            time.sleep(POLL_S)
        return state

    def stop(self) -> None:
        """Stop it and record nothing: the run resumes from its last checkpoint the next time.

        May be called from a signal handler, while `wait` is being executed.
        """
        self.process.stop()
        _wait_for_release(self.folder.path / "lock")


def identity(pid: int | None) -> dict[str, Any]:
    """A process by host, number and start time, because numbers are used again; from Linux's /proc."""
    try:
        since = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        since = ""
    return {"host": socket.gethostname(), "pid": pid, "since": since}


def stop_orphan(lock: Path) -> bool:
    """Stop a training that outlived the sweep that started it (kill -9, a lost connection); return whether it was one.

    Its lock file names the process of the sweep. A training that a sweep waits for, or that runs on another machine, is
    left alone.
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
        _wait_for_release(lock)
    return not is_locked(lock)


def _wait_for_release(lock: Path) -> None:
    """Wait until the stopped processes of a training are gone."""
    deadline = time.monotonic() + STOP_PATIENCE_S
    while is_locked(lock) and time.monotonic() < deadline:
        time.sleep(0.01)


def last_exception(lines: Sequence[str]) -> str:
    """The message of the last exception in a log, as in `ValueError: ...`, on one line; empty if there is none."""
    for number in range(len(lines) - 1, -1, -1):
        if _EXCEPTION.match(lines[number]):
            more = [line.strip() for line in lines[number + 1 : number + 4] if line.strip()]
            return " ".join([lines[number], *more])
    return ""


def metric_in_log(lines: Iterable[str], metric: Metric) -> dict[str, Any]:
    """The metric in fairseq's JSON log, with the update it was measured at.

    A resumed run repeats the validations after its checkpoint: of each update, the last record counts.
    """
    records: dict[int, dict[str, float]] = {}
    for line in lines:
        record = parse_line(line)
        if record and record.kind == metric.log and "num_updates" in record.values:
            records[int(record.values["num_updates"])] = record.values
    values = {update: finite(record.get(metric.value)) for update, record in sorted(records.items())}
    if not values:
        raise ValueError(f"log.txt has no record of the split {metric.log!r}: was it validated on?")
    if metric.at == "last":
        update, value = list(values.items())[-1]
    else:
        update, value = metric.best(values.items(), lambda pair: pair[1])
    if value is None:
        known = ", ".join(sorted(records[update]))
        raise ValueError(
            f"{metric.log} {metric.value} is not a finite number at update {update}; the record has {known}"
        )
    return {"value": value, "num_updates": update}


def keep_weights(folders: Sequence[RunFolder]) -> None:
    """Keep only the weights of each finished run's checkpoint that its metric is about."""
    for folder in folders:
        kept = folder.checkpoint()
        if folder.state() != DONE or kept is None:
            continue
        remove_unfinished(kept.parent)  # of a kill in the next line, or at the very end of the training
        drop_optimizer(kept)
        for path in folder.checkpoints():
            if path != kept:
                path.unlink()


def keep_best(folders: Sequence[RunFolder], metric: Metric) -> None:
    """Keep only the weights of the best run of each finished cell."""
    keep_weights(folders)
    for folder in not_best(folders, metric):
        for path in folder.checkpoints():
            path.unlink()


def not_best(folders: Sequence[RunFolder], metric: Metric) -> list[RunFolder]:
    """The runs that lose their weights by `keep_best`."""
    others: list[RunFolder] = []
    for cell in dict.fromkeys(folder.run.cell for folder in folders):
        runs = [folder for folder in folders if folder.run.cell == cell]
        with_weights = [folder for folder in runs if folder.checkpoint() is not None]
        if with_weights and all(folder.state() == DONE for folder in runs):
            best = metric.best(with_weights, lambda folder: (folder.result() or {})["value"])
            others += [folder for folder in with_weights if folder is not best]
    return others


def drop_optimizer(path: Path) -> None:
    """Rewrite a checkpoint without the optimizer's state, as with fairseq's --no-save-optimizer-state."""
    import torch

    from roberta_plugin.checkpoint_files import load_state

    state = load_state(path)
    if _OPTIMIZER not in state:
        return
    del state[_OPTIMIZER]
    with atomic_write(path) as file:
        lock_unfinished(file.fileno())
        torch.save(state, file)
