"""Worker processes of a binarization. Used by `pipeline`; a worker imports numpy and the tokenizer, but not torch."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.binarize.parts import (
    Placement,
    Reading,
    Sharing,
    Task,
    encode_task,
    items_of,
    numbered_blocks,
    place_part,
    write_part,
)
from roberta_plugin.data.manifest import sha256_of_file
from roberta_plugin.data.mmap_tokens import SharedFiles
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.progress import Progress

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_BE_STOPPED = 0.5
_SECONDS_TO_STOP = 2.0


class Workers:
    """Worker processes; the first error in one stops all and is raised here."""

    def __init__(
        self,
        executor: ProcessPoolExecutor,
        job: Reading,
        shared: _Shared,
        *,
        progress: bool,
        thread_errors: Sequence[BaseException | None],
    ) -> None:
        self.job = job
        self.progress = progress
        self._executor = executor
        self._shared = shared
        self._thread_errors = thread_errors  # without its threads, the executor would wait forever

    def encode(
        self,
        tasks: Sequence[Task],
        to_hash: Sequence[TextInput],
        *,
        num_bytes: int | None,
        meanwhile: Callable[[], None],
    ) -> dict[str, tuple[int, str]]:
        """Write the part files of the tasks; return size and SHA-256 of `to_hash`, and of what is read once, by path.

        `meanwhile` is called repeatedly while this process waits, and must be short.
        """
        encoding = [self._executor.submit(_encode, task) for task in tasks]
        hashing = {source.path: self._executor.submit(_hash, source.path) for source in to_hash}
        helping = [
            self._executor.submit(_help) for _ in range(self._shared.num_processes if _sharing_tasks(tasks) else 0)
        ]
        self._follow("binarize", [*encoding, *hashing.values(), *helping], num_bytes, meanwhile)
        digests = {path: future.result() for path, future in hashing.items()}
        for future in encoding:
            digests |= future.result()
        return digests

    def place(self, files: SharedFiles, placements: Sequence[Placement], *, meanwhile: Callable[[], None]) -> None:
        """Write part files into the .bin and .idx."""
        placing = [self._executor.submit(_place, files, placement) for placement in placements]
        self._follow("write", placing, files.num_bytes, meanwhile)

    def count_ids(self, tasks: Sequence[Task], *, num_bytes: int) -> NDArray[np.int64]:
        """Frequency of each tokenizer id in the text (number of ids,)."""
        counting = [self._executor.submit(_count, task) for task in tasks]
        self._follow("count", counting, num_bytes, lambda: None)
        total = np.zeros(len(self.job.tokenizer.symbols), dtype=np.int64)
        for future in counting:
            total += future.result()
        return total

    def _follow(
        self, label: str, futures: Sequence[Future[Any]], total: int | None, meanwhile: Callable[[], None]
    ) -> None:
        """Wait for all futures and show the progress; raise the first error."""
        before = self._shared.num_bytes.value
        with Progress(label, total, is_shown=self.progress) as bar:
            waiting: set[Future[Any]] = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=_SECONDS_BETWEEN_LOOKS, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                bar.show(self._shared.num_bytes.value - before)
                meanwhile()
                for error in self._thread_errors:
                    raise RuntimeError("a thread of the process pool has ended") from error


@contextmanager
def start_workers(job: Reading, tasks: Sequence[Task], *, workers: int, progress: bool) -> Iterator[Workers]:
    """Start worker processes for a job; they have ended when the context exits, even after an error or Ctrl-C."""
    context = _context()
    job.tokenizer.encode_lines([""])  # loads its engine, once for all forked workers
    num_readers = len(_sharing_tasks(tasks))
    num_processes = workers if num_readers else min(workers, max(1, len(tasks)) + 1)  # one more to hash the inputs
    shared = _Shared(context, num_readers=num_readers, num_processes=num_processes)
    try:
        with (
            _noted_thread_errors() as errors,
            ProcessPoolExecutor(
                num_processes, context, initializer=_start_worker, initargs=(job, shared, os.getpid())
            ) as executor,
        ):
            try:
                yield Workers(executor, job, shared, progress=progress, thread_errors=errors)
            finally:
                shared.is_stopped.set()
                executor.shutdown(wait=True, cancel_futures=True)
    except BrokenProcessPool as error:
        raise OSError(
            "A worker process was killed, most likely because memory ran out: run the same command again with fewer "
            "--workers; finished parts are kept."
        ) from error
    except RuntimeError as error:
        if not _lacks_threads(error):
            raise
        raise OSError(
            "No further thread could be started: raise the limit on processes (`ulimit -u`) or memory, or give fewer "
            "--workers."
        ) from error


def _lacks_threads(error: BaseException | None) -> bool:
    """True if this error, or a cause of it, is Python's error that the system starts no further thread."""
    return error is not None and (
        "start new thread" in str(error) or _lacks_threads(error.__cause__ or error.__context__)
    )


@contextmanager
def _noted_thread_errors() -> Iterator[list[BaseException | None]]:
    """While entered, errors that end a thread are put into a list instead of printed."""
    errors: list[BaseException | None] = []
    before, threading.excepthook = threading.excepthook, lambda args: errors.append(args.exc_value)
    try:
        yield errors
    finally:
        threading.excepthook = before


class _Shared:
    """State shared by all processes."""

    def __init__(self, context: Any, *, num_readers: int, num_processes: int) -> None:
        self.num_bytes = context.Value("Q")
        self.is_stopped = context.Event()
        self.sharing = Sharing(context, num_readers=num_readers)
        self.num_processes = num_processes


def _context() -> Any:
    """Forked workers share the loaded tokenizer; on systems where forking is unsafe, each loads its own."""
    context: BaseContext = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    return context


def _sharing_tasks(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.may_share]


_job: Any  # a Job, or a Reading for workers that only count
_shared: _Shared


class _StoppedError(Exception):
    """Another worker failed, or the user stopped the run."""


def _start_worker(job: Reading, shared: _Shared, parent: int) -> None:
    global _job, _shared
    _job, _shared = job, shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it and stops the workers
    signal.signal(signal.SIGTERM, _end_soon)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, _end_soon)
    threading.Thread(target=_exit_in_time, args=(parent,), daemon=True).start()


def _end_soon(*_: Any) -> None:
    """SLURM sends SIGTERM to all processes, a closed terminal SIGHUP: let the parent act first, or it takes this for a
    crash.
    """
    time.sleep(_SECONDS_TO_BE_STOPPED)
    os._exit(1)


def _exit_in_time(parent: int) -> None:
    """End a worker if its parent was killed, or if it waits for a pipe and cannot notice the stop."""
    while os.getppid() == parent and not _shared.is_stopped.is_set():
        time.sleep(0.2)
    if os.getppid() == parent:
        time.sleep(_SECONDS_TO_STOP)
    os._exit(1)


def _encode(task: Task) -> dict[str, tuple[int, str]]:
    """Encode a task; return size and SHA-256 of what is read once, by path."""
    digest, num_bytes = hashlib.sha256(), 0

    def on_data(data: bytes) -> None:
        nonlocal num_bytes
        digest.update(data)
        num_bytes += len(data)

    read_once = [span.source.path for span in task.spans if span.source.is_hashed_when_read]
    try:
        if read_once:
            encode_task(_job, task, on_read=_report, on_data=on_data, sharing=_shared.sharing)
        else:
            encode_task(_job, task, on_read=_report, sharing=_shared.sharing)
    finally:
        if task.may_share:
            _shared.sharing.end_reader()
    return {path: (num_bytes, digest.hexdigest()) for path in read_once}


def _help() -> None:
    """Encode parts that other workers hand over."""
    while (part := _shared.sharing.take(_shared.is_stopped.is_set)) is not None:
        _check_stop()
        write_part(part.path, _job, part.blocks)


def _hash(path: str) -> tuple[int, str]:
    digest = sha256_of_file(path, on_read=_check_stop)
    return os.path.getsize(path), digest


def _place(files: SharedFiles, placement: Placement) -> None:
    _check_stop()
    _report(place_part(files, placement))


def _count(task: Task) -> NDArray[np.int64]:
    counts = np.zeros(len(_job.tokenizer.symbols), dtype=np.int64)
    for _, block in numbered_blocks(_job, task, _report):
        counts += np.bincount(_job.tokenizer.encode_lines(items_of(block, _job.rules)[0])[0], minlength=len(counts))
    return counts


def _check_stop() -> None:
    if _shared.is_stopped.is_set():
        raise _StoppedError


def _report(num_bytes: int) -> None:
    _check_stop()
    with _shared.num_bytes.get_lock():
        _shared.num_bytes.value += num_bytes
