"""One run of a sweep: its folder, what state it is in, and how it is done.

    CELL/seed-N/ run.json       what it is: cell, seed, settings, arguments of fairseq-train, the sweep's folder
                 log.txt        output of fairseq-train, of all attempts
                 checkpoints/   a stopped run resumes from the last one
                 result.json    the metric: the run is done
                 outputs/       raw outputs of its checkpoint, which is then no longer needed (`stored_outputs.py`)
                 failure.json   why the last attempt failed
                 lock           held by fairseq-train for as long as it lives; names the sweep that started it

Local processes and SLURM jobs use the same code; only `local.py` and `slurm.py` know the difference.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.sweeps.grid import Metric, Run, finite
from roberta_plugin.experiments.sweeps.orphans import identity
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json
from roberta_plugin.locks import is_locked, try_lock
from roberta_plugin.training.log import parse_line
from roberta_plugin.training.process import STOP_PATIENCE_S, TrainingProcess, train_program

OUTPUTS = "outputs"
POLL_S = 0.2
_TAIL_LINES = 8
_SEARCHED_BYTES = 200_000  # of the log's end, for the exception
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception|Exit|Interrupt)\b(?:: .*)?$")
DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "waiting"


class RunFolder:
    """A run and the folder it lies in."""

    def __init__(self, root: Path, run: Run, metric: Metric) -> None:
        self.run, self.metric, self.root = run, metric, root
        self.path = root / run.name
        self.code: Path | None = None  # of a snapshot (`snapshot.py`); None: the code that runs now

    def check(self) -> None:
        """Refuse a folder that holds another run. The sweep may have been moved, with its data beside it.

        Raises:
            ValueError: naming the options that differ.
        """
        known = self._read("run.json", "cell")
        if known is None:
            return
        before = known.get("arguments", [])
        moved = [_moved(argument, known.get("sweep"), self.root) for argument in before]
        now = self.run.arguments
        difference = _difference([a if a in now else b for a, b in zip(before, moved, strict=True)], now)
        if difference:
            raise ValueError(
                f"{self.path} holds a run with other options: it was started {difference}. (Its run.json says so.) "
                "Give another --output-dir, or delete that one if the run is not needed any more."
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
        """What result.json says: `value`, `num_updates`, `seconds`; None before the run is done."""
        return self._read("result.json", "value")

    def failure(self) -> dict[str, Any] | None:
        """What failure.json says: `reason`, `exit_code`, `attempts`."""
        return self._read("failure.json")

    def checkpoint(self) -> Path | None:
        """The checkpoint that the metric is about: the best one, if it is there, or the last one."""
        names = ("checkpoint_best.pt", "checkpoint_last.pt") if self.metric.at == "best" else ("checkpoint_last.pt",)
        found = [self.path / "checkpoints" / name for name in names]
        return next((path for path in found if path.is_file()), None)

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

        Args:
            exit_code: of fairseq-train.
            seconds: how long it took.
            log_start: where in log.txt this attempt begins.
        """
        before = self.failure() or {"attempts": 0}
        about: dict[str, Any] = {
            "exit_code": exit_code,
            "seconds": round(seconds, 1),
            "attempts": before["attempts"] + 1,
        }
        about["metric"] = asdict(self.metric)
        try:
            if exit_code != 0:
                exception = last_exception(self._log_from(log_start))
                why = f": {exception}" if exception else ""
                raise ValueError(f"fairseq-train ended with exit code {exit_code}{why}")
            found = self._read_metric()
        except (ValueError, OSError) as error:
            self._write("failure.json", {"reason": str(error), **about, "log_ends": self._end_of_log()})
            return FAILED
        self._write("result.json", {**found, **about})
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
        with open(self.path / "log.txt", encoding="utf-8", errors="replace") as lines:
            return metric_in_log(lines, self.metric)

    def _end_of_log(self) -> list[str]:
        lines = (self.path / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-_TAIL_LINES:]

    def _log_from(self, start: int) -> list[str]:
        with open(self.path / "log.txt", "rb") as log:
            log.seek(max(start, log.seek(0, os.SEEK_END) - _SEARCHED_BYTES))
            return log.read().decode("utf-8", errors="replace").splitlines()

    def fail(self, reason: str) -> None:
        """Write failure.json for an attempt that never started fairseq-train."""
        attempts = (self.failure() or {"attempts": 0})["attempts"] + 1
        self._write("failure.json", {"reason": reason, "exit_code": None, "attempts": attempts, "log_ends": []})

    def is_locked(self) -> bool:
        """Whether a process of the training is alive."""
        return is_locked(self.path / "lock")

    def _read(self, name: str, *keys: str) -> dict[str, Any] | None:
        remedy = "delete it and run the command again; the run resumes from its checkpoints"
        return read_json(self.path / name, keys=keys, remedy=remedy)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        with atomic_write(self.path / name, "w") as file:
            json.dump(content, file, indent=2)


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
        self._wait_for_lock()
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
        self._wait_for_lock()

    def _wait_for_lock(self) -> None:
        """Wait until the killed processes of the training are gone."""
        deadline = time.monotonic() + STOP_PATIENCE_S
        while self.folder.is_locked() and time.monotonic() < deadline:
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

    Raises:
        ValueError: if the log holds no finite value.
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
        update, value = max(values.items(), key=lambda pair: _rank(pair[1], metric))
    if value is None:
        known = ", ".join(sorted(records[update]))
        raise ValueError(
            f"{metric.log} {metric.value} is not a finite number at update {update}; the record has {known}"
        )
    return {"value": value, "num_updates": update}


def _rank(value: float | None, metric: Metric) -> float:
    if value is None:
        return float("-inf")
    return -value if metric.goal == "min" else value


def _moved(argument: str, before: str | None, root: Path) -> str:
    """A path beside or in the sweep's folder `before`, now that this folder is `root`.

    Example:
        _moved("/a/RTE/data", "/a/RTE/runs", Path("/b/RTE/runs"))  ->  "/b/RTE/data"
    """
    if before is None:
        return argument
    parent = f"{Path(before).parent}{os.sep}"
    return str(root.parent / argument.removeprefix(parent)) if argument.startswith(parent) else argument


def _difference(known: Sequence[str], planned: Sequence[str]) -> str:
    """How the options of two command lines differ; empty if they do not.

    Example:
        _difference(["d", "--lr", "1"], ["d", "--lr", "3", "--bf16"])  ->  "with --lr 1, not 3, and without --bf16"
    """
    old, new = _by_name(known), _by_name(planned)
    changed = [f"with {name} {old[name]}, not {new[name]}" for name in old if new.get(name, old[name]) != old[name]]
    left_out = [f"with {name} {old[name]}".rstrip() + ", which is now left out" for name in old if name not in new]
    added = [f"without {name} {new[name]}".rstrip() for name in new if name not in old]
    return ", and ".join([*changed, *left_out, *added])


def _by_name(arguments: Sequence[str]) -> dict[str, str]:
    """Options with their values: ["d", "--lr", "1", "--bf16"] -> {"data": "d", "--lr": "1", "--bf16": ""}."""
    values: dict[str, list[str]] = {}
    name = "data"
    for argument in arguments:
        if argument.startswith("--"):
            name = argument
        values.setdefault(name, []).extend([argument] * (argument != name))
    return {name: " ".join(texts) for name, texts in values.items()}
