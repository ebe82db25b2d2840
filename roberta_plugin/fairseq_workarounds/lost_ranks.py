"""Fault 19: a rank that is killed, stopped or hangs leaves the others waiting, and no error names it.

gloo waits half an hour, NCCL ten minutes, a stopped rank 0 holds up both for ever; where a connection breaks at once,
the error has an address and a port. Each rank writes signs of life (`signs_of_life.py`):

    no sign of life from a rank for LIMIT_S               the others end, and name it
    signs of life, but no step for STALL_LIMITS of these  likewise: those who have begun fewer steps than others
    a collective fails                                    its error names the rank without a sign of life

A thread does it while the rank saves a checkpoint, validates or reads data, and no step waits for it. A job that is
suspended and resumed as a whole goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from typing import Any

import torch.distributed as dist
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessExitedException

from roberta_plugin.fairseq_workarounds.training_loop import programs, wrap
from roberta_plugin.signs_of_life import BEAT_S, Watch

VARIABLE = "ROBERTA_LOST_RANK_SECONDS"
LIMIT_S = 300.0
EXIT_CODE = os.EX_TEMPFAIL

on_lost: list[Callable[[Exception], None]] = []
"""Called before the process ends for the sake of a lost rank."""


class LostRankError(RuntimeError):
    """Another rank is missing."""


def sentence(found: str) -> str:
    """What a user should know: who is missing, and what to do."""
    return (
        f"Lost rank: {found}. Look at its node and its output; the same command goes on from the last checkpoint. "
        f"(Ranks may be silent for {VARIABLE} seconds, {limit_s():g} now; 0 waits as long as gloo and NCCL do.)"
    )


def end_process(found: str) -> None:
    """End this process from a thread: the main one waits for the lost rank and cannot be reached."""
    error = LostRankError(sentence(found))
    for call in on_lost:
        call(error)
    sys.stdout.flush()
    os.write(2, f"\n{type(error).__name__}: {error}\n".encode())
    os._exit(EXIT_CODE)


def limit_s() -> float:
    """Seconds without a sign of life after which a rank counts as lost; 0 for no watch.

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
    """The store of the process group, by a connection of our own: the main thread may hold the other one for long."""
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        store = TCPStore(store.host, store.port, None, False, wait_for_workers=False)
    return PrefixStore("lost-ranks", store)


_watch: Watch | None = None


def start() -> None:
    """Watch the other ranks from now on; nothing on one rank, and nothing the second time."""
    global _watch
    seconds = limit_s()
    if _watch or not seconds or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    _watch = Watch(
        connection(), rank=dist.get_rank(), world_size=dist.get_world_size(), limit_s=seconds, end=end_process
    )
    _watch.start()
    Finalize(None, _watch.leave, exitpriority=90)


@contextmanager
def watched() -> Iterator[None]:
    """While entered, an error of a collective names the lost rank, and the other ranks hear of any other error.

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


def load_checkpoint(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """fairseq's; the first step of a training in which ranks wait for each other."""
    start()
    with watched():
        return fairseqs(*args, **options)


def train(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """An epoch of fairseq's."""
    with watched():
        return fairseqs(*args, **options)


def step(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """fairseq's training or validation step, counted."""
    if _watch is not None:
        _watch.steps += 1
    return fairseqs(*args, **options)


def call_main(fairseqs: Callable[..., None], *args: Any, **options: Any) -> None:
    """fairseq's start of a program on all its ranks: what a rank has said of a lost one stays the last word."""
    try:
        fairseqs(*args, **options)
    except ProcessExitedException as error:
        if error.exit_code != EXIT_CODE:
            raise
        sys.exit(EXIT_CODE)


def install() -> None:
    """Watch in trainings on several ranks."""
    wrap(checkpoint_utils, "load_checkpoint", load_checkpoint)
    wrap(Trainer, "train_step", step)
    wrap(Trainer, "valid_step", step)
    if programs():
        wrap(distributed_utils, "call_main", call_main)
    for program in programs():
        wrap(program, "train", train)
