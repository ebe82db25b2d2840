"""Names given by the user -> text inputs (file or pipe, compression, text or JSON Lines) and pieces of their content.

Used by `text_inputs`. The name gives the compression, and the content must agree. JSON Lines are recognized by the
name (.jsonl, .ndjson) or, in a .json file, by the content. Any other file that begins like JSON Lines is refused unless
--format is given, because its braces and keys would become tokens.

Example: `news.jsonl.gz` -> TextInput(suffix=".gz", is_jsonl=True); `books/*.txt` -> one TextInput per file.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import queue
import re
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal

from roberta_plugin.extras import require
from roberta_plugin.json_files import parse_json

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
    damage = (EOFError, OSError, zlib.error, lzma.LZMAError, *([zstandard(name).ZstdError] if suffix == ".zst" else []))
    try:
        for piece in _pieces(counted, suffix, block_bytes):
            yield piece, counted.num_read - num_read
            num_read = counted.num_read
        if not counted.num_read:
            raise EOFError("it is empty")
    except damage as error:
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
    # The libraries' own file readers accept an .xz or .bz2 with a damaged second stream.
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


TextFormat = Literal["auto", "text", "jsonl"]
STANDARD_INPUT = "-"
COMPRESSIONS = (".gz", ".zst", ".xz", ".bz2")
_JSONL_NAMES = (".jsonl", ".ndjson")
_BYTES_TO_LOOK_AT = 2**16
_BEGIN_OF_OBJECT = re.compile(rb'\{\s*"')
# first bytes of files that are not plain text, their format, and the remedy
_NAMES = {".gz": "gzip", ".zst": "Zstandard", ".xz": "xz", ".bz2": "bzip2"}
_FOREIGN = (
    *((_MAGIC[suffix], f"compressed with {name}", f"rename it to end in {suffix}") for suffix, name in _NAMES.items()),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"PAR1", "a Parquet file", "write its text to JSON Lines first"),
    (b"\xff\xfe", "UTF-16 text", "convert it with `iconv -f UTF-16 -t UTF-8`"),
    (b"\xfe\xff", "UTF-16 text", "convert it with `iconv -f UTF-16 -t UTF-8`"),
)
_BZIP2_BLOCK = b"1AY&SY"  # after "BZh" and a digit; a text may begin with "BZh"


@dataclass(frozen=True)
class TextInput:
    """A file or pipe with text.

    Attributes:
        path: to open.
        name: as given by the user, for messages and the manifest.
        suffix: one of `COMPRESSIONS`, or "" for plain text; for a pipe it is detected when reading.
        is_jsonl: whether it is JSON Lines.
        is_stream: whether it is a pipe, which has no known length and can be read only once.
        is_unknown: whether the content has not been examined yet, as for a pipe.
    """

    path: str
    name: str
    suffix: str = ""
    is_jsonl: bool = False
    is_stream: bool = False
    is_unknown: bool = False

    @property
    def is_sequential(self) -> bool:
        """Whether it can only be read from its beginning."""
        return self.is_stream or bool(self.suffix)


def find_inputs(patterns: Iterable[str | os.PathLike[str]], *, text_format: TextFormat = "auto") -> list[TextInput]:
    """File names, glob patterns, pipes and "-" -> inputs, in order; the files of one pattern are sorted by name.

    Raises:
        FileNotFoundError: if a file does not exist or a pattern matches none.
        ValueError: if a file is given twice, or is not readable text.
    """
    inputs: list[TextInput] = []
    seen: set[str] = set()
    for given in patterns:
        pattern = os.fspath(given)
        for path in _paths_of(pattern):
            key = pattern if pattern == STANDARD_INPUT else os.path.realpath(path)
            if key in seen:
                raise ValueError(f"The text file {path} is given twice: name each input once.")
            seen.add(key)
            inputs.append(_look_at(path, pattern if pattern == STANDARD_INPUT else path, text_format))
    if not inputs:
        raise FileNotFoundError("No text file given: name at least one input.")
    return inputs


def looks_like_json_lines(head: bytes) -> bool:
    """Whether the first line of a text that begins with `head` is a JSON object."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not _BEGIN_OF_OBJECT.match(head):
        return False
    line, line_end, _ = head.partition(b"\n")
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return not line_end  # the beginning of a long record


def unclear_format_error(name: str) -> ValueError:
    """The error for an input that begins like JSON Lines but whose name does not say so."""
    return ValueError(
        f"{name} begins like JSON Lines, but its name does not end in .jsonl: give --format jsonl, or --format text "
        "to tokenize its lines as they are, braces included."
    )


def _paths_of(pattern: str) -> list[str]:
    if pattern == STANDARD_INPUT:
        # Worker processes have another standard input, but inherit this copy.
        return [f"/dev/fd/{os.dup(0)}"]
    if os.path.isfile(pattern) or _is_stream(pattern):
        return [pattern]
    if found := [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]:
        return found
    raise FileNotFoundError(
        f"No text file {pattern}: give files, '-' for the standard input, or a pattern in quotes such as 'books/*.txt'."
    )


def _is_stream(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def _look_at(path: str, name: str, text_format: TextFormat) -> TextInput:
    is_jsonl = text_format == "jsonl"
    if name == STANDARD_INPUT or _is_stream(path):
        if sys.platform != "linux":
            raise ValueError(f"{name}: reading text from a pipe needs Linux. Write the text to a file first.")
        return TextInput(path, name, is_jsonl=is_jsonl, is_stream=True, is_unknown=text_format == "auto")
    suffix = next((suffix for suffix in COMPRESSIONS if path.lower().endswith(suffix)), "")
    with open_input(path) as file:
        head = file.read(_BYTES_TO_LOOK_AT)
    if not suffix:
        _refuse_foreign(head, name)
    elif not head:
        raise ValueError(f"{name} is empty, so it is not a {suffix} file: copy or download it again.")
    stem = path.lower().removesuffix(suffix)
    if text_format == "auto" and stem.endswith(_JSONL_NAMES):
        is_jsonl = True
    elif text_format == "auto":
        if suffix:
            with open_input(path) as file:
                pieces = decompressed_pieces(file, suffix, name, _BYTES_TO_LOOK_AT)
                head = next((piece for piece, _ in pieces if piece), b"")
        is_jsonl = _is_jsonl(head, name, is_json=stem.endswith(".json"))
    return TextInput(path, name, suffix, is_jsonl)


def _refuse_foreign(head: bytes, name: str) -> None:
    for beginning, what, remedy in _FOREIGN:
        if head.startswith(beginning) and (beginning != b"BZh" or head[4:].startswith(_BZIP2_BLOCK)):
            raise ValueError(f"{name} is {what}, but its name does not say so: {remedy}.")


def _is_jsonl(head: bytes, name: str, *, is_json: bool) -> bool:
    if looks_like_json_lines(head):
        if not is_json:
            raise unclear_format_error(name)
        return True
    if is_json and head.lstrip().startswith((b"{", b"[")):
        raise ValueError(
            f"{name} is JSON, but not one record per line: convert it to JSON Lines, for instance with "
            "`jq -c '.[]' FILE > FILE.jsonl`, or give --format text to tokenize its lines as they are."
        )
    return False
