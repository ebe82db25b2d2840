"""A run of fairseq-train and its folder, for launches, sweeps and fine-tunings.

Only this module knows the names of these files, except `runs.py`, which reads the record and state of a run, and
`restart.py`, which must import nothing of this package:

    run.json       made from: fairseq-train's arguments; of a sweep, cell and seed; of a launch, batch and snapshot
    jobs.json      SLURM's jobs by run, in the folder of a sweep; a launched run is the only one there, called `.`
    checkpoints/   a stopped run resumes from the last one
    .snapshots/    the code that the jobs run (`submission.py`), in the folder of the sweep or the launched run

    of a launched run                                    of a run of a sweep, ROOT/CELL/seed-N
    status.json    rank 0's last report                  result.json   the metric: the run is done
    attempts.jsonl, failures/, training_started.json     failure.json  why the last attempt failed
                   how attempts ended (`restart.py`)     lock          held by its fairseq-train; names the sweep
    logs/JOB_NODE_log.out                                log.txt       output of fairseq-train, of all attempts
                   output of a node's ranks              outputs/      raw outputs of the checkpoint (`inference.py`)

A run of a sweep writes its best and its last checkpoint, each with Adam's state, three times the size of the weights: a
grid of large models would fill a disk. A finished run keeps its result in result.json, and only the weights of its
chosen checkpoint, for evaluation. An unfinished run keeps everything, to resume from it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from roberta_plugin.checkpoint_files import lock_unfinished, remove_unfinished
from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.kinds.score_names import in_record
from roberta_plugin.json_files import read_json, type_fault, write_json
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.arguments import PACKAGE, with_code
from roberta_plugin.launch.log import last_exception, lines_of, parse_line
from roberta_plugin.launch.process import TrainingProcess, tracker_variables, train_program, wait_for_release
from roberta_plugin.launch.restart import STATUS_FILE
from roberta_plugin.locks import is_locked, process_identity, release, try_lock
from roberta_plugin.record import differences, moved, option_name, options_of, refuse
from roberta_plugin.runs import (
    CHECKPOINTS,
    DONE,
    FAILED,
    FAILURE,
    FILES,
    LOCK,
    REMEDY,
    RESULT,
    RUN,
    RUNNING,
    WAITING,
    Choice,
    RunFiles,
    RunRecord,
    read_record,
    write_record,
)
from roberta_plugin.settings import check_values, short

JOBS, LOG = "jobs.json", "log.txt"
ARRAY_LOGS = "submitit"  # of the jobs of a sweep, beside its runs
ITSELF = "."  # the run of a folder that is not a sweep's
POLL_S = 0.2
_TAIL_LINES = 8
_MOST_NAMED = 5  # runs in a message
_SEARCHED_BYTES = 200_000  # of the log's end, for the exception
_OPTIMIZER = "last_optimizer_state"
_FOLDER = "{folder}"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The number by which runs are compared.

    Either `log`, the validation split whose records in the log hold `value`, or `file`, a JSON file in the run's folder
    that holds it (`a.b` is b inside a).
    """

    log: str = ""
    value: str
    goal: Literal["min", "max"]
    at: Choice = "best"  # the validation that counts, whose checkpoint is the run's result
    file: str = ""

    def __post_init__(self) -> None:
        """Check the values."""
        check_values(self)
        if bool(self.log) == bool(self.file):
            raise ValueError("there must be either log, the split as in fairseq's log, or file, a JSON file.")

    @property
    def options(self) -> list[str]:
        """Options that let fairseq keep the checkpoint that is best by this metric."""
        if not self.log or self.at != "best":
            return []
        goal = ["--maximize-best-checkpoint-metric"] if self.goal == "max" else []
        return ["--best-checkpoint-metric", self.value, *goal]

    def best(self, items: Iterable[T], value: Callable[[T], float | None]) -> T:
        """The item with the best value, of equal ones the first; None is worse than every number."""

        def rank(item: T) -> float:
            number = value(item)
            return -math.inf if number is None else -number if self.goal == "min" else number

        return max(items, key=rank)

    def __str__(self) -> str:
        """As in `valid ppl, last, smaller is better`."""
        where = self.file or f"{self.log} {self.value}, {self.at}"
        return f"{where}, {'smaller' if self.goal == 'min' else 'larger'} is better"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training: its cell, its seed, and fairseq-train's arguments, in which {folder} stands for its folder."""

    cell: str
    seed: str
    settings: Mapping[str, str]  # axis -> label
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """The run's path in the folder of the sweep."""
        return f"{self.cell}/seed-{self.seed}"

    def arguments_in(self, folder: Path, metric: Metric, *, code: Path | None = None) -> list[str]:
        """fairseq-train's arguments for a run in `folder`; user directories are taken from `code`."""
        added = ["--seed", self.seed, "--save-dir", str(folder / "checkpoints"), "--log-format", "json"]
        if "--user-dir" not in self.arguments:
            added += ["--user-dir", str(PACKAGE)]
        if "--best-checkpoint-metric" not in self.arguments:
            added += metric.options
        arguments = [argument.replace(_FOLDER, str(folder)) for argument in self.arguments] + added
        return arguments if code is None else list(with_code(arguments, code))


@dataclass(frozen=True, kw_only=True)
class Status:
    """The training as rank 0 last saw it."""

    job_id: str
    attempt: int
    phase: str  # starting, training, stopped, finished; without SLURM also failed
    update: int
    max_update: int
    loss: float | None
    tokens_per_second: float | None
    updates_per_second: float | None
    time: float  # seconds since 1970
    mfu: float | None = None  # percent of the GPUs' peak
    slowest: Sequence[Any] | None = None  # the straggler, if there are several ranks (`heartbeats.Slowest`)

    @property
    def seconds_left(self) -> float | None:
        """Time for the remaining updates at the present speed."""
        if not self.updates_per_second or self.max_update <= 0:
            return None
        return max(0, self.max_update - self.update) / self.updates_per_second


def write_status(folder: Path, status: Status) -> None:
    """Write status.json."""
    write_json(folder / STATUS_FILE, asdict(status))


def read_status(folder: Path) -> Status | None:
    """The status that rank 0 last wrote of a launched run; None if it has not written any."""
    items = fields(Status)
    needed = [item.name for item in items if item.default is MISSING]
    values = read_json(folder / STATUS_FILE, keys=needed, remedy=REMEDY, hints=get_type_hints(Status))
    return None if values is None else Status(**{item.name: values[item.name] for item in items if item.name in values})


def find_submitted(folder: Path) -> list[Path]:
    """Folders of launched runs and submitted sweeps in `folder` (which may be one itself), down to three levels."""
    return sorted({path.parent for at in ("", "*/", "*/*/", "*/*/*/") for path in folder.glob(at + JOBS)})


def known_jobs(root: Path) -> dict[str, str]:
    """Job ids by the runs' names, of all submissions of a folder; the id is empty where torchrun started the run."""
    remedy = "cancel its jobs that still wait, if any (squeue --me), and delete the file"
    jobs = read_json(root / JOBS, keys=(), remedy=remedy) or {}
    for name, job in jobs.items():
        if fault := type_fault(job, str | None):
            raise ValueError(f"{root / JOBS}: {name!r} is {fault}: {remedy}.")
    return {name: str(job or "") for name, job in jobs.items()}


def copied_from(root: Path) -> Path | None:
    """The folder that this one is a copy of, if it is still there: it has the jobs."""
    record = next(filter(None, map(read_record, chain([root], root.glob("*/seed-*")))), None)
    if record is None:
        return None
    words = ("", *record.arguments, "--save-dir", "")
    original = Path(record.sweep or Path(words[words.index("--save-dir") + 1]).parent)
    is_copy = os.access(original / JOBS, os.R_OK) and not original.samefile(root)  # it may be in a colleague's home
    return original if is_copy and known_jobs(original).items() & known_jobs(root).items() else None


def own_jobs(root: Path) -> dict[str, str]:
    """The jobs of a folder by its runs' names; none where it is a copy."""
    jobs = {name: job for name, job in known_jobs(root).items() if job}
    return {} if jobs and copied_from(root) else jobs


def add_jobs(root: Path, jobs: Mapping[str, str]) -> None:
    """Note the jobs that were submitted for runs, by their names."""
    write_json(root / JOBS, {**known_jobs(root), **jobs})


def queued_runs(root: Path, queue: Mapping[str, slurm_commands.Job] | None = None) -> dict[str, str]:
    """The runs that wait or run in SLURM's queue, with their states; `queue` is an earlier answer of SLURM.

    Raises:
        ChildProcessError: if SLURM cannot be asked.
    """
    jobs = own_jobs(root)
    if queue is None:
        try:
            queue = slurm_commands.jobs({job.partition("_")[0] for job in jobs.values()}, ours=True)
        except OSError as error:  # to guess would mean to submit a run twice
            raise ChildProcessError(f"{root / JOBS} names jobs of SLURM, and SLURM cannot be asked: {error}") from error
    return {name: queue[job].state for name, job in jobs.items() if job in queue and queue[job].is_active}


def run_states(root: Path, queue: Mapping[str, slurm_commands.Job]) -> dict[str, str]:
    """The states of a sweep's runs by their names; of what waits or runs in SLURM's queue, SLURM's word."""
    runs = [RunFiles(path.parent) for path in root.glob(f"*/seed-*/{RUN}")]
    states = {str(run.path.relative_to(root)): run.state() for run in runs}
    queued = queued_runs(root, queue)
    for name, state in states.items():
        if state == WAITING or (state == FAILED and name in queued):
            states[name] = queued.get(name, "not in the queue")
    return dict(sorted(states.items()))


class RunFolder(RunFiles):
    """A run and the folder it lies in."""

    def __init__(self, root: Path, run: Run, metric: Metric) -> None:
        super().__init__(root / run.name)
        self.run, self.metric, self.root = run, metric, root
        self.group = root.name  # of trackers
        self.code: Path | None = None  # of a snapshot (`submission.py`); None: the code that runs now

    def check(
        self, named: Callable[[str], str] = option_name, free: Callable[[str], bool] = lambda name: False
    ) -> None:
        """Refuse a folder that holds another run. The sweep may have been moved, with its data beside it, or with a
        folder or more around it.

        `named` is how the user gives an option of fairseq-train, and `free` which may differ (`record.differences`).
        """
        record = self.record()
        if record is None:
            return
        from roberta_plugin.fairseq_workarounds.command_line import without_removed

        now = self.run.arguments
        before = [
            moved(argument, before=record.sweep, now=self.root, among=now)
            for argument in without_removed(record.arguments)
        ]
        refuse(
            f"{self.path} holds a run with other options",
            differences(options_of(before), options_of(now), named=named, free=free),
            "(Its run.json says so.) Give another --output-dir, or delete that one if the run is not needed any more.",
        )

    def write_record(self, choice: Choice) -> None:
        """Write run.json, with the choice of the checkpoint."""
        write_record(self.path, RunRecord(**vars(self.run), sweep=str(self.root), checkpoint=choice))

    def prepare(self) -> None:
        """Make the folder and write run.json; read the metric again if another one is asked for now."""
        if self.state() == RUNNING:  # it records what it is done for, and is asked again when it has ended
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_record(self.metric.at)
        result = self.result()
        if result is not None and result.get("metric") != asdict(self.metric):
            self.finish(exit_code=0, seconds=float(result.get("seconds", 0)))

    def choice(self) -> Choice:
        """Which checkpoint is the result now: the one of the validation that counts."""
        return self.metric.at

    def has_lost_choice(self) -> bool:
        """True if the run is done, and the checkpoint that is chosen now was deleted, because another one was then."""
        before = self.measured() or self.metric.at
        is_written = not {"--no-save", "--disable-validation"} & set(self.run.arguments)
        chosen = self.path / CHECKPOINTS / FILES[self.metric.at]
        return before != self.metric.at and is_written and not chosen.is_file()

    def start(self, environment: Mapping[str, str] | None = None) -> Attempt | None:
        """Start fairseq-train; None if another process trains this run."""
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not try_lock(lock, self.path / LOCK):
                return None
            shutil.rmtree(self.outputs, ignore_errors=True)  # of an earlier training
            os.ftruncate(lock, 0)
            os.write(lock, json.dumps(process_identity(os.getpid())).encode())
            variables = {**self.tracker_variables(), **(environment or {})}
            if self.code is not None:  # fairseq-train imports this package from there, not from the working folder
                path = os.pathsep.join(filter(None, [str(self.code), os.environ.get("PYTHONPATH", "")]))
                variables = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", **variables}
            process = TrainingProcess(
                [*train_program(), *self.run.arguments_in(self.path, self.metric, code=self.code)],
                log=self.path / LOG,
                lock=lock,
                environment=variables,
            )
        finally:
            os.close(lock)  # the training holds it now
        return Attempt(self, process)

    def tracker_variables(self) -> dict[str, str]:
        """Variables that name this run for trackers, unless this process has them already."""
        return tracker_variables(self.path, name=self.run.name, group=self.group, user=os.environ)

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
            self._write(FAILURE, {"reason": str(error), **about, "log_ends": log_ends})
            (self.path / RESULT).unlink(missing_ok=True)  # by another metric
            return FAILED
        self.write_record(self.metric.at)  # another command may have recorded another choice since
        self._write(RESULT, {**value, **about})
        (self.path / FAILURE).unlink(missing_ok=True)
        return DONE

    def _read_metric(self) -> dict[str, Any]:
        if self.metric.file:
            path = self.path / self.metric.file
            value: Any = json.loads(path.read_text(encoding="utf-8"))
            for name in self.metric.value.split("."):
                value = value.get(name) if isinstance(value, dict) else None
            if finite(value) is None:
                raise ValueError(f"{path} has no finite number {self.metric.value} (it has {short(value)})")
            return {"value": finite(value)}
        return metric_in_log(self.log_lines(), self.metric)

    def log_lines(self, *, start: int = 0, most: int | None = None) -> list[str]:
        """The lines of log.txt from byte `start` on, at most the last `most` bytes; empty before there is a log."""
        return lines_of(self.path / LOG, start=start, most=most)

    def fail(self, reason: str) -> None:
        """Write failure.json for an attempt that never started fairseq-train."""
        self._write(FAILURE, {"reason": reason, "exit_code": None, "attempts": self._attempts(), "log_ends": []})

    def _attempts(self) -> int:
        """Attempts, with the present one."""
        return int((self.failure() or {"attempts": 0})["attempts"]) + 1

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_json(self.path / name, content)


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
        self._release()
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
        self._release()

    def _release(self) -> None:
        """Wait until all of its processes have ended, and give back a lock that would not end with them."""
        wait_for_release(lock := self.folder.path / LOCK)
        if not is_locked(lock):
            release(lock)


def metric_in_log(lines: Iterable[str], metric: Metric) -> dict[str, Any]:
    """The metric in fairseq's JSON log, with the update it was measured at.

    A resumed run repeats the validations after its checkpoint. For each update, the last record counts.
    """
    records: dict[int, dict[str, float]] = {}
    for line in lines:
        record = parse_line(line)
        if record and record.kind == metric.log and "num_updates" in record.values:
            records[int(record.values["num_updates"])] = record.values
    values = {update: finite(in_record(metric.value, record)) for update, record in sorted(records.items())}
    if not values:
        raise ValueError(f"log.txt has no record of the split {metric.log!r}: was it validated on?")
    if metric.at == "last":
        update, value = list(values.items())[-1]
    else:
        update, value = metric.best(values.items(), lambda pair: pair[1])
    if value is None:
        names = ", ".join(sorted(records[update]))
        raise ValueError(
            f"{metric.log} {metric.value} is not a finite number at update {update}; the record has {names}"
        )
    return {"value": value, "num_updates": update}


def finite(value: Any) -> float | None:
    """`value` as a number, or None if it is not finite: a diverged run logs nan."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def check_choice(folders: Sequence[RunFolder]) -> None:
    """Refuse to choose another checkpoint of finished runs than the one whose weights they have kept.

    Raises:
        ValueError: naming the runs, and what can be done.
    """
    lost = [folder for folder in folders if folder.has_lost_choice()]
    if not lost:
        return
    choice = lost[0].metric.at
    other = next(each for each in FILES if each != choice)
    names = ", ".join(folder.run.name for folder in lost[:_MOST_NAMED]) + (", ..." if len(lost) > _MOST_NAMED else "")
    raise ValueError(
        f"The runs in {lost[0].root} are done with their {other} checkpoint as the result, and {FILES[choice]} is "
        f"deleted in {len(lost)} of {len(folders)} ({names}): give --checkpoint {other} (in a grid file `at: {other}` "
        f"under metric), or train them again with another --output-dir. With --keep all, both checkpoints stay."
    )


def keep_weights(folders: Sequence[RunFolder]) -> None:
    """Keep only the weights of each finished run's chosen checkpoint."""
    for folder in folders:
        kept = folder.chosen_checkpoint()
        if folder.state() != DONE or not kept.is_file():
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
    """The runs that lose their weights by `keep_best`.

    A cell is left alone until all its runs are done. Runs whose weights were deleted by hand do not compete, so that
    the best of those that have weights keeps them.
    """
    others: list[RunFolder] = []
    for cell in dict.fromkeys(folder.run.cell for folder in folders):
        runs = [folder for folder in folders if folder.run.cell == cell]
        with_weights = [folder for folder in runs if folder.has_weights()]
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
