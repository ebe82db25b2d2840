"""Compressed files (.gz, .zst, .xz) -> pieces of their content, for `text_inputs`."""

from __future__ import annotations

import gzip
import lzma
import queue
import threading
import zlib
from collections.abc import Iterator
from typing import IO


def decompressed_pieces(path: str, block_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Content of a file in pieces, each with the bytes of the file that were read for it.

    Raises:
        ValueError: if the file is damaged or cut off.
    """
    with open(path, "rb") as file:
        try:
            if path.lower().endswith(".zst"):
                yield from _decompressed_zstd(file, block_bytes)
                return
            position = 0
            opener = gzip.open if path.lower().endswith(".gz") else lzma.open
            with opener(file, "rb") as decompressed:
                while piece := decompressed.read(block_bytes):
                    yield piece, file.tell() - position
                    position = file.tell()
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise ValueError(
                f"{path} cannot be decompressed ({error}): it is damaged, cut off or not what its name says. "
                "Copy or download it again."
            ) from error


def _decompressed_zstd(file: IO[bytes], block_bytes: int) -> Iterator[tuple[bytes, int]]:
    import zstandard

    # The library's own stream reader takes a file that was cut off for a complete one.
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
    frame = decompressor.decompressobj()
    is_inside = False
    try:
        while data := file.read(block_bytes // 8):
            num_read = len(data)
            while data:
                is_inside = True
                piece = frame.decompress(data)
                data = b""
                if frame.eof:
                    data, frame, is_inside = frame.unused_data, decompressor.decompressobj(), False
                yield piece, num_read
                num_read = 0
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error
    if is_inside:
        raise EOFError("the last frame is incomplete")


def read_ahead(pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """The same pieces, read by a thread: decompression frees the interpreter, so tokenization can run meanwhile."""
    pieces_read: queue.Queue[tuple[bytes, int] | BaseException | None] = queue.Queue(maxsize=2)
    is_given_up = threading.Event()

    def read() -> None:
        try:
            for piece in pieces:
                pieces_read.put(piece)
                if is_given_up.is_set():
                    return
            pieces_read.put(None)
        except BaseException as error:
            pieces_read.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        while (piece := pieces_read.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        is_given_up.set()
        while not pieces_read.empty():  # the thread may wait for room, once
            pieces_read.get_nowait()
