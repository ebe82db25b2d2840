"""Pieces of an input that are read in a thread: ahead of those that use them, and without waiting for a slow pipe."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def read_ahead(pieces: Iterator[T], *, most: int = 2) -> Iterator[T]:
    """Read the pieces in a thread: decompression releases the interpreter lock, so encoding runs meanwhile."""
    yield from (piece for piece in read_when_ready(pieces, most=most, patience=None) if piece is not None)


def read_when_ready(pieces: Iterator[T], *, most: int, patience: float | None) -> Iterator[T | None]:
    """Read the pieces in a thread, up to `most` ahead; None where the next one is not there, so many seconds after the
    first one since the last None."""
    pieces_read: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(maxsize=most)
    is_given_up = threading.Event()

    def read() -> None:
        try:
            for piece in pieces:
                pieces_read.put((piece,))
                if is_given_up.is_set():
                    return
            pieces_read.put(None)
        except BaseException as error:
            pieces_read.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        piece, since = pieces_read.get(), time.monotonic()
        while True:
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece[0]
            try:
                left = None if patience is None else max(0.0, since + patience - time.monotonic())
                piece = pieces_read.get(timeout=left)
            except queue.Empty:
                yield None
                piece, since = pieces_read.get(), time.monotonic()
    finally:
        is_given_up.set()
        while not pieces_read.empty():  # the thread may be waiting for room
            pieces_read.get_nowait()
