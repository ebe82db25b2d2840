"""Fault 19: a rank that is killed, stopped or hangs leaves the others waiting, and no error names it.

gloo waits half an hour, NCCL ten minutes, a stopped rank 0 holds up both for ever; where a connection breaks at once,
the error has an address and a port. Each rank writes heartbeats (`signs_of_life.py`):

    no heartbeat of a rank for LIMIT_S          the others end, and name it
    heartbeats, but no step for longer than     they end, and name those with the fewest steps
      `signs_of_life.Signs._patience`
    a collective fails                          its error names the rank without a heartbeat

Before it ends, each rank writes the stacks of all its threads to stderr; so does one that has kept its own thread from
running (a C function with Python's lock) for most of LIMIT_S. A thread does it while the rank saves a checkpoint,
validates or reads data, and no step waits for it. A job that is suspended and resumed as a whole continues.

torch alone does not suffice. `monitored_barrier` before each update works with gloo only and tells rank 0 alone the
number of a rank, without its node; a stopped rank 0 holds up the others until the limit of their group, half an hour.
NCCL's watchdog ends ranks whose collective has timed out, without naming the one that is missing.
"""

from __future__ import annotations

import datetime
import faulthandler
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessExitedException

from roberta_plugin.signs_of_life import BEAT_S, STALL_LIMITS, UPDATING, ForwardClock, Slowest, Verdict, Watch

VARIABLE = "ROBERTA_LOST_RANK_SECONDS"
LIMIT_S = 300.0
EXIT_CODE = os.EX_TEMPFAIL
STDERR = 2
STACKS_AFTER = 0.8  # fraction of the limit without a beat of a rank's main thread

on_lost: list[Callable[[Exception], None]] = []
"""Called before the process ends because of a lost rank."""


class LostRankError(RuntimeError):
    """Another rank is missing; `nodes` holds the nodes of ranks that hang or are silent."""

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes


def sentence(verdict: str) -> str:
    """The message for the user: the missing rank, and the remedy."""
    return (
        f"Lost rank: {verdict}. Look at its node and its output; the same command resumes from the last checkpoint. "
        f"(Ranks may be silent for {VARIABLE} seconds, {limit_s():g} now; 0 waits as long as gloo and NCCL do.)"
    )


def end_process(verdict: Verdict) -> None:
    """End this process from a thread: the main one waits for the lost rank and cannot be reached."""
    error = LostRankError(sentence(verdict.text), nodes=verdict.hosts)
    for call in on_lost:
        call(error)
    sys.stdout.flush()
    os.write(STDERR, b"\nStacks of all threads; the last line says why this rank ends.\n")
    faulthandler.dump_traceback(file=STDERR, all_threads=True)
    os.write(STDERR, f"\n{type(error).__name__}: {error}\n".encode())
    os._exit(EXIT_CODE)


def limit_s() -> float:
    """Seconds without a heartbeat after which a rank counts as lost; 0 for no watch.

    Raises:
        ValueError: if the environment variable is not a number of seconds.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text or LIMIT_S)
    except ValueError:
        seconds = -1.0
    if not (seconds == 0 or 5 * BEAT_S <= seconds < float("inf")):
        raise ValueError(
            f"The environment variable {VARIABLE} is {text!r}: give seconds, {5 * BEAT_S:g} or more, or 0."
        )
    return seconds


def connection() -> Store:
    """A second connection to the process group's store: the main thread may hold the first one for long.

    torchrun may keep the store over restarts of the ranks; entries of an earlier start must not be read.
    """
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        store = TCPStore(store.host, store.port, None, False, wait_for_workers=False)
    return PrefixStore(f"lost-ranks/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}", store)


_watch: Watch | None = None
_forward: ForwardClock | None = None
_data_since: float | None = None  # when this rank began to wait for the data of the next update


def start(trainer: Any) -> None:
    """Start to watch the other ranks; does nothing on a single rank, or when called again."""
    global _watch, _forward
    seconds = limit_s()
    if _watch or not seconds or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    # gloo's and NCCL's own limit is the last resort: it names no rank, and a checkpoint may take longer than that
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2 * STALL_LIMITS * seconds))
    _forward = ForwardClock(trainer._model)
    _watch = Watch(
        connection(),
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        limit_s=seconds,
        end=end_process,
        on_beat=lambda: faulthandler.dump_traceback_later(STACKS_AFTER * seconds, file=STDERR),
    )
    _watch.start()
    Finalize(None, _leave, exitpriority=90)


def _leave() -> None:
    if _watch is not None:
        _watch.leave()
    faulthandler.cancel_dump_traceback_later()


def slowest() -> Slowest | None:
    """The straggler, on rank 0 of several."""
    return None if _watch is None else _watch.slowest()


@contextmanager
def doing(what: str) -> Iterator[None]:
    """While entered, this rank's heartbeats name its activity."""
    if _watch is None:
        yield
        return
    before, _watch.doing = _watch.doing, what
    try:
        yield
    finally:
        _watch.doing = before


@contextmanager
def watched() -> Iterator[None]:
    """While entered, errors of collectives name the lost rank, and other errors are announced to all ranks.

    Raises:
        LostRankError: from the error of a collective.
    """
    try:
        yield
    except Exception as error:
        if _watch is None or isinstance(error, LostRankError):
            raise
        found = _watch.suspects() if is_of_collective(error) else ""
        _watch.leave(f"{type(error).__name__}: {error}")
        if not found:
            raise
        raise LostRankError(sentence(found)) from error


def is_of_collective(error: Exception) -> bool:
    """Whether another rank may be the cause."""
    is_known = isinstance(error, dist.DistError) or any(name in str(error) for name in ("gloo", "NCCL", "Connection"))
    return isinstance(error, RuntimeError) and is_known


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **options: Any) -> Any:
    """Start the watch, then run fairseq's function, the first in which ranks wait for each other."""
    start(trainer)
    with watched(), doing("loading"):
        return fairseqs(cfg, trainer, *args, **options)


def save_checkpoint(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's function; its time does not count as waiting for data."""
    global _data_since
    with doing("saving"):
        saved = fairseqs(*args, **options)
    _data_since = time.perf_counter()
    return saved


def validate(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's validation, named in the heartbeats."""
    with doing("validating"):
        return fairseqs(*args, **options)


def train(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's epoch; its first step sets this rank's activity."""
    with watched(), doing("beginning an epoch"):
        return fairseqs(*args, **options)


def validate_and_save(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's function after each update; then this rank waits for data."""
    global _data_since
    ended = fairseqs(*args, **options)
    _data_since = time.perf_counter()
    return ended


def train_step(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run, count and time fairseq's step."""
    global _data_since
    if _watch is None or _forward is None:
        return fairseqs(*args, **options)
    begun = time.perf_counter()
    waited = 0.0 if _data_since is None else begun - _data_since
    _watch.steps += 1
    _watch.doing = UPDATING
    result = fairseqs(*args, **options)
    _watch.updates.add(time.perf_counter() - begun)
    computed = _forward.take()
    if computed is not None and _data_since is not None:
        _watch.own_work.add(waited + computed)
    _data_since = None
    return result


def valid_step(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run and count fairseq's step."""
    if _watch is not None:
        _watch.steps += 1
    return fairseqs(*args, **options)


def call_main(fairseqs: Callable[..., None], *args: Any, **options: Any) -> None:
    """Run a program on all ranks as fairseq does; a rank's message about a lost rank stays its last output."""
    try:
        fairseqs(*args, **options)
    except ProcessExitedException as error:
        if error.exit_code != EXIT_CODE:
            raise
        sys.exit(EXIT_CODE)
