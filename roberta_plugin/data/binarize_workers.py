"""Worker processes of a binarization. Used by `binarize.py`; a worker imports numpy and the tokenizer, no torch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from typing import Any

from roberta_plugin.data.binarize_parts import Job, Task, encode_task
from roberta_plugin.data.manifest import sha256_of_file

_SECONDS_BETWEEN_LOOKS = 0.1


def run_tasks(
    job: Job,
    tasks: Sequence[Task],
    *,
    paths_to_hash: Sequence[str],
    total_bytes: int,
    workers: int,
    progress: bool,
) -> list[str]:
    """Encode tasks in worker processes; return the SHA-256 of the files `paths_to_hash`.

    The first error ends all: it is raised here when the workers have stopped, and finished parts stay.
    """
    context = _context()
    if tasks:
        job.tokenizer.encode_lines([""])  # loads its engine, once for all forked workers
    bytes_read, is_stopped = context.Value("Q"), context.Event()
    num_processes = max(1, min(workers, len(tasks) + len(paths_to_hash)))
    with ProcessPoolExecutor(
        num_processes, context, initializer=_start_worker, initargs=(job, bytes_read, is_stopped, os.getpid())
    ) as executor:
        try:
            encoding = [executor.submit(_encode, task) for task in tasks]
            hashing = [executor.submit(_hash, path) for path in paths_to_hash]
            _follow([*encoding, *hashing], lambda: int(bytes_read.value), _total(tasks, total_bytes), progress)
            return [future.result() for future in hashing]
        except BrokenProcessPool as error:
            raise OSError(
                "A worker process was killed, most often because memory ran out: run the same command again, which "
                "keeps the finished parts, with fewer --workers."
            ) from error
        finally:
            is_stopped.set()
            executor.shutdown(wait=True, cancel_futures=True)


def _context() -> Any:
    """Forked workers share the tokenizer that is loaded; where forking is unsafe, they load it themselves."""
    context: BaseContext = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    return context


def _total(tasks: Sequence[Task], total_bytes: int) -> int:
    """Bytes still to read, for the bar: those of the tasks, of which only whole files lack a size of their own."""
    num_bytes = 0
    for task in tasks:
        for span in task.spans:
            num_bytes += (os.path.getsize(span.path) if span.end is None else span.end) - span.start
    return min(num_bytes, total_bytes)


def _follow(futures: Sequence[Future[Any]], bytes_read: Callable[[], int], total: int, progress: bool) -> None:
    """Wait for all, showing how far it is; raise the first error."""
    from tqdm import tqdm

    # None: no bar where the output is no terminal
    with tqdm(total=total, unit="B", unit_scale=True, desc="binarize", disable=None if progress else True) as bar:
        waiting: set[Future[Any]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=_SECONDS_BETWEEN_LOOKS, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            bar.update(min(bytes_read(), total) - bar.n)


_job: Job
_bytes_read: Any
_is_stopped: Any


class _StoppedError(Exception):
    """Another worker has failed, or the user has stopped the run."""


def _start_worker(job: Job, bytes_read: Any, is_stopped: Any, parent: int) -> None:
    global _job, _bytes_read, _is_stopped
    _job, _bytes_read, _is_stopped = job, bytes_read, is_stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process hears it and stops the workers
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """A parent that was killed cannot stop its workers, which would wait for tasks for ever."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _encode(task: Task) -> None:
    encode_task(_job, task, on_read=_report)


def _hash(path: str) -> str:
    return sha256_of_file(path, on_read=_check_stop)


def _check_stop() -> None:
    if _is_stopped.is_set():
        raise _StoppedError


def _report(num_bytes: int) -> None:
    _check_stop()
    with _bytes_read.get_lock():
        _bytes_read.value += num_bytes
