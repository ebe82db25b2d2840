"""Compressed files -> their content in pieces: gzip, Zstandard, xz and bzip2, whole or refused as damaged.

Used by `text_inputs_files`, which says which file is compressed how.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from roberta_plugin.extras import require

COMPRESSIONS = (".gz", ".zst", ".xz", ".bz2")
MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".xz": b"\xfd7zXZ\x00", ".bz2": b"BZh"}
"""The first bytes of compressed files."""


class CountedFile(io.RawIOBase):
    """A sequentially read file that counts its bytes and passes them to `on_data`.

    In a live file, reading waits for no more bytes than there are.
    """

    def __init__(
        self, file: Any, on_data: Callable[[bytes], None] = lambda data: None, *, is_live: bool = False
    ) -> None:
        self._read = file.read1 if is_live else file.read
        self._on_data = on_data
        self._is_live = is_live
        self._head = b""
        self.num_read = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; empty only at the end."""
        head, self._head = self._head[:size], self._head[size:]
        if head and self._is_live:
            return head
        data: bytes = self._read(size - len(head))
        self.num_read += len(data)
        self._on_data(data)
        return head + data

    def suffix(self) -> str:
        """The compression according to the first bytes, which are kept for the next read."""
        longest = max(map(len, MAGIC.values()))
        head = piece = self.read(longest)
        while piece and len(head) < longest and any(magic.startswith(head) for magic in MAGIC.values()):
            head += (piece := self.read(longest - len(head)))
        self._head = head
        return next((suffix for suffix, magic in MAGIC.items() if head.startswith(magic)), "")


def decompressed_pieces(
    file: IO[bytes] | CountedFile, suffix: str, name: str, block_bytes: int
) -> Iterator[tuple[bytes, int]]:
    """Content of a compressed file in pieces, each with the number of bytes of the file read for it.

    Raises:
        ValueError: if the file is damaged or cut off; the message calls it `name`.
    """
    counted_file = file if isinstance(file, CountedFile) else CountedFile(file)
    num_read = 0
    damage = (EOFError, OSError, zlib.error, lzma.LZMAError, *([zstandard(name).ZstdError] if suffix == ".zst" else []))
    try:
        for piece in _pieces(counted_file, suffix, block_bytes):
            yield piece, counted_file.num_read - num_read
            num_read = counted_file.num_read
        if not counted_file.num_read:
            raise EOFError("it is empty")
    except damage as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk; errors of the content have no number
        raise ValueError(
            f"{name} cannot be decompressed ({error}): it is damaged, cut off or not in the format that its name says. "
            "Copy or download it again."
        ) from error


def _pieces(file: CountedFile, suffix: str, block_bytes: int) -> Iterator[bytes]:
    return _gzip_pieces(file, block_bytes) if suffix == ".gz" else _stream_pieces(file, suffix, block_bytes)


def _gzip_pieces(file: CountedFile, block_bytes: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file, mode="rb") as decompressed:
        while piece := decompressed.read(block_bytes):
            yield piece


def _stream_pieces(file: CountedFile, suffix: str, block_bytes: int) -> Iterator[bytes]:
    """The libraries' own readers of .xz and .bz2 accept a file with a damaged second stream; this one does not."""
    new: dict[str, Callable[[], Any]] = {
        **{".xz": lzma.LZMADecompressor, ".bz2": bz2.BZ2Decompressor},
        ".zst": _zstandard_decompressor,
    }
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


def zstandard(name: str) -> Any:
    """The package for Zstandard, of the file `name`; Python has it itself only from 3.14 on."""
    require("backports.zstd", extra="zst", purpose=f"{name}: Zstandard")
    from backports import zstd

    return zstd


def _zstandard_decompressor() -> Any:
    from backports import zstd

    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31})
