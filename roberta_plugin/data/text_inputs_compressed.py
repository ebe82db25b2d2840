"""Compressed files (.gz, .zst, .xz, .bz2) -> pieces of their content, for `text_inputs`."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import queue
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

_OPEN_FILE = re.compile(r"/(?:dev|proc/self)/fd/(\d+)|/dev/stdin")
_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".xz": b"\xfd7zXZ\x00", ".bz2": b"BZh"}


def open_input(path: str) -> IO[bytes]:
    """Open a file, or use a pipe that is already open: a pipe `/dev/fd/N` cannot be opened twice."""
    if match := _OPEN_FILE.fullmatch(path):
        return open(int(match[1] or 0), "rb", closefd=False)
    return open(path, "rb")


class CountedFile(io.RawIOBase):
    """A sequentially read file that counts its bytes and passes them to `on_data`."""

    def __init__(self, file: IO[bytes], on_data: Callable[[bytes], None] = lambda data: None) -> None:
        self._file = file
        self._on_data = on_data
        self._head = b""
        self.num_read = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; empty only at the end."""
        head, self._head = self._head[:size], self._head[size:]
        data = self._file.read(size - len(head))
        self.num_read += len(data)
        self._on_data(data)
        return head + data

    def suffix(self) -> str:
        """The compression according to the first bytes, which are kept for the next read."""
        self._head = self.read(max(map(len, _MAGIC.values())))
        return next((suffix for suffix, magic in _MAGIC.items() if self._head.startswith(magic)), "")


def decompressed_pieces(
    file: IO[bytes] | CountedFile, suffix: str, name: str, block_bytes: int
) -> Iterator[tuple[bytes, int]]:
    """Content of a compressed file in pieces, each with the number of bytes of the file read for it.

    Raises:
        ValueError: if the file is damaged or cut off; the message calls it `name`.
    """
    counted = file if isinstance(file, CountedFile) else CountedFile(file)
    num_read = 0
    try:
        for piece in _pieces(counted, suffix, block_bytes):
            yield piece, counted.num_read - num_read
            num_read = counted.num_read
        if not counted.num_read:
            raise EOFError("it is empty")
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk; errors of the content have no number
        raise ValueError(
            f"{name} cannot be decompressed ({error}): it is damaged, cut off or not in the format that its name says. "
            "Copy or download it again."
        ) from error


def _pieces(file: CountedFile, suffix: str, block_bytes: int) -> Iterator[bytes]:
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=file, mode="rb") as decompressed:
            while piece := decompressed.read(block_bytes):
                yield piece
        return
    # The libraries' own file readers accept a .zst that was cut off, and an .xz or .bz2 with a damaged second stream.
    new: dict[str, Callable[[], Any]] = {".zst": _Zstandard, ".xz": lzma.LZMADecompressor, ".bz2": bz2.BZ2Decompressor}
    stream, is_inside = new[suffix](), False
    while data := file.read(max(1, block_bytes // 8)):
        while data:
            if not is_inside and suffix == ".xz":
                data = data.lstrip(b"\0")  # padding between streams
                if not data:
                    break
            is_inside = True
            yield stream.decompress(data, block_bytes)
            data = b""
            while not stream.eof and not stream.needs_input:
                yield stream.decompress(b"", block_bytes)
            if stream.eof:
                data, stream, is_inside = stream.unused_data, new[suffix](), False
    if is_inside:
        raise EOFError("its end is missing")


class _Zstandard:
    """zstandard's decompressor with the interface of those of lzma and bz2."""

    # Bytes of input at a time, which yield 128 MiB at most: zstandard has no limit on what it returns.
    _SLICE = 4096

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._frame = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
        self._waiting = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        data = self._waiting + data
        data, self._waiting = data[: self._SLICE], data[self._SLICE :]
        try:
            return self._frame.decompress(data)
        except self._error as error:
            raise EOFError(str(error)) from error

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data) + self._waiting


def read_ahead(pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Read the pieces in a thread: decompression releases the interpreter lock, so encoding runs meanwhile."""
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
        while not pieces_read.empty():  # the thread may be waiting for room
            pieces_read.get_nowait()
