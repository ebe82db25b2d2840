"""For commands that clean up when stopped: SIGTERM and SIGHUP act as Ctrl-C; library calls run in a child process."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_SECONDS_BETWEEN_LOOKS = 0.2

received: list[int] = []
"""The signals that have raised KeyboardInterrupt, since the command began.

Libraries that call Python from C or Rust, as gigatoken and torch do, swallow that exception and raise another: an error
after a signal is an interrupt all the same.
"""


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM, sent by SLURM and `kill`, and SIGHUP of a closed terminal raise KeyboardInterrupt as Ctrl-C does.

    All three are noted in `received`. Under nohup, SIGHUP stays ignored, in the background SIGINT.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield
        return
    usual = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    numbers = [signal.SIGTERM, *(number for number, handler in usual.items() if signal.getsignal(number) is handler)]
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def call_in_child(
    function: Callable[..., Any], *args: Any, on_wait: Callable[[float], None] = lambda seconds: None, **kwargs: Any
) -> Any:
    """Call a function in a child process, which an interrupt ends at once, whatever library code it is in.

    Result, errors and arguments must be picklable. `on_wait` is called a few times per second with the seconds elapsed.

    Raises:
        OSError: if another process killed the child.
    """
    import multiprocessing  # takes long, and every command reads this module

    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, os.getpid(), function, args, kwargs), daemon=True)
    process.start()
    sender.close()
    started = time.monotonic()
    try:
        while not receiver.poll(_SECONDS_BETWEEN_LOOKS):
            on_wait(time.monotonic() - started)
        is_good, outcome = receiver.recv()
    except EOFError:
        process.join()
        raise OSError(
            f"The worker process was killed by signal {-process.exitcode}, most likely because memory ran out."
        ) from None
    finally:
        process.kill()
        process.join()
    if not is_good:
        raise outcome
    return outcome


def _call(
    sender: Connection, parent: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends this process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    try:
        outcome = True, function(*args, **kwargs)
    except Exception as error:
        outcome = False, error
    sender.send(outcome)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def _interrupt(number: int, _: Any) -> None:
    received.append(number)
    raise KeyboardInterrupt
