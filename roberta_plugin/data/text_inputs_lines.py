"""A text input -> whole lines, in blocks of bytes or one by one, and the error of a line that is not text.

A plain file can be read in parts (`read_lines`): the part [start, end) owns the lines whose first byte lies in it.
Parts that cover the file therefore cover each line exactly once, wherever the cuts are.

Example: the part [0, 5) of "ab\\n cd\\n\\nef" holds the lines "ab" and " cd"; its part [5, 10) holds "" and "ef".
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, TypeVar

from roberta_plugin.data.text_inputs_ahead import read_ahead
from roberta_plugin.data.text_inputs_compressed import CountedFile, decompressed_pieces
from roberta_plugin.data.text_inputs_files import TextInput, open_input, unclear_format_error
from roberta_plugin.data.text_inputs_json import looks_like_json_lines

T = TypeVar("T")
BLOCK_BYTES = 2**20
_BYTES_AT_ONCE = 2**16  # of `lines_of_table`, so that a bar shows how much was read
LONGEST_LINE = 2**28  # bytes; a few megabytes of .gz may hold one line of gigabytes
BOM = b"\xef\xbb\xbf"  # some editors begin a file with it; it is not text
_LINE_END = re.compile(rb"\n|\r(?!\n)")
CORRECT_TEXT = "Convert the file to UTF-8 or correct the line, or skip and count such lines with --skip-bad-lines."


class BadLineError(ValueError):
    """A line that cannot be read as text; its message names the file, the line (of a table the row) and the remedy."""

    def __init__(self, path: str, line: int, reason: str, remedy: str = CORRECT_TEXT, unit: str = "line") -> None:
        super().__init__(path, line, reason, remedy, unit)
        self.path, self.line, self.reason, self.remedy, self.unit = path, line, reason, remedy, unit

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.line}: {self.reason}. {self.remedy}"

    def after(self, num_lines: int) -> BadLineError:
        """The same error where `num_lines` lines come before those among which this one was counted."""
        return BadLineError(self.path, num_lines + self.line, self.reason, self.remedy, self.unit)


def read_lines(
    source: TextInput,
    *,
    start: int = 0,
    end: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    on_data: Callable[[bytes], None] = lambda data: None,
    is_live: bool = False,
) -> Iterator[bytes]:
    """Whole lines in blocks of about `block_bytes`; a block is larger only if a single line is.

    A byte order mark at the beginning of a file is left out, as Python's utf-8-sig does; fairseq takes it for text.
    `start` and `end` choose a part of a plain file, in bytes (see the head of this module). `on_read` gets the number
    of bytes read from disk; `on_data` gets the bytes of what is read from its beginning. From a pipe that
    `is_live`, lines come as soon as they are written.

    Raises:
        ValueError: if a compressed file is damaged or cut off, a pipe contains JSON Lines without --format, or a line
            is longer than `LONGEST_LINE`.
    """
    pieces = _plain(source.path, start, end, block_bytes)
    if source.is_sequential:
        pieces = read_ahead(_sequential(source, block_bytes, on_data, is_live=is_live and source.is_stream))
    unfinished: list[bytes] = []
    mark = b"" if start else BOM
    for piece, num_read in pieces:
        on_read(num_read)
        cut = piece.rfind(b"\n") + 1 or piece.rfind(b"\r", 0, -1) + 1
        if not cut:
            unfinished.append(piece)
            if (num_bytes := sum(map(len, unfinished))) > LONGEST_LINE:
                raise ValueError(
                    f"{source.name}: a line has more than {num_bytes >> 20} MiB. Split the text into lines, or check "
                    "whether the file is damaged or has another format."
                )
            continue
        yield b"".join([*unfinished, piece[:cut]]).removeprefix(mark)
        unfinished, mark = [piece[cut:]], b""
    if rest := b"".join(unfinished).removeprefix(mark):
        yield rest


def _sequential(
    source: TextInput, block_bytes: int, on_data: Callable[[bytes], None], *, is_live: bool
) -> Iterator[tuple[bytes, int]]:
    """Content of a pipe or compressed file in pieces, each with the number of bytes read for it."""
    with open_input(source.path) as opened:
        file = CountedFile(opened, on_data, is_live=is_live)
        suffix = file.suffix() if source.is_stream else source.suffix
        plain = ((piece, len(piece)) for piece in iter(lambda: file.read(block_bytes), b""))
        pieces = decompressed_pieces(file, suffix, source.name, block_bytes) if suffix else plain
        for piece, num_read in pieces:
            if source.is_unknown and piece:
                if looks_like_json_lines(piece):
                    raise unclear_format_error(source.name)
                source = replace(source, is_unknown=False)
            yield piece, num_read


def _plain(path: str, start: int, end: int | None, block_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Content of a part of a plain file in pieces, each with its number of bytes."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = _line_start(file, start, size)
        stop = size if end is None else _line_start(file, end, size)
        file.seek(position)
        while position < stop and (piece := file.read(min(block_bytes, stop - position))):
            position += len(piece)
            yield piece, len(piece)


def _line_start(file: IO[bytes], offset: int, size: int) -> int:
    """The smallest position from `offset` on at which a line begins, or the size of the file."""
    if offset <= 0:
        return 0
    position = file.seek(min(offset, size) - 1) if size else 0
    while piece := file.read(2**16):
        if piece.endswith(b"\r"):  # the next byte decides whether a line ends here
            piece += file.read(1)
        if match := _LINE_END.search(piece):
            return position + match.end()
        position += len(piece)
    return size


def lines_of_table(
    source: TextInput, *, on_read: Callable[[int], None], on_data: Callable[[bytes], None] = lambda data: None
) -> TextLines:
    """The lines of a text, with their ends."""
    blocks = read_lines(source, block_bytes=_BYTES_AT_ONCE, on_read=on_read, on_data=on_data, is_live=True)
    return TextLines(source.name, blocks, source)


class TextLines:
    """The lines of a text with their ends. A line that is not text is raised, and reading continues after it."""

    def __init__(self, name: str, blocks: Iterator[bytes], source: TextInput | None = None) -> None:
        self.name, self.number = name, 0  # of the line that was read last
        self.source = source  # None: standard input
        self._blocks = blocks
        self._block: bytes | None = None  # looked at, not yet read
        self._lines: Iterator[str | bytes] = iter(())
        self._is_at_start = True

    def __iter__(self) -> TextLines:
        """Itself."""
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            BadLineError: if it is not text in UTF-8.
        """
        while (line := next(self._lines, None)) is None:
            block = self.first_bytes()
            if not block:
                raise StopIteration
            self._block = None
            try:
                text = block.decode("utf-8")
            except UnicodeDecodeError:
                text = "\0"
            self._lines = iter(block.splitlines(keepends=True)) if "\0" in text else io.StringIO(text, newline="")
        self.number += 1
        return line if isinstance(line, str) else self._decode(line)

    def first_bytes(self) -> bytes:
        """The next block of bytes, which stays to be read; empty at the end."""
        if self._block is None:
            self._block = next(self._blocks, b"")
            if self._is_at_start:
                self._block, self._is_at_start = self._block.removeprefix(BOM), False
        return self._block

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            reason = "it holds byte 0x00, so the file is a binary one, or UTF-16"
            raise BadLineError(self.name, self.number, reason, "`iconv -f UTF-16LE -t UTF-8` converts the latter.")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte 0x{line[error.start]:02x} is not UTF-8"
            remedy = "Save the file as UTF-8, for instance by `iconv -f latin1 -t utf-8`, with its encoding for latin1."
            raise BadLineError(self.name, self.number, reason, remedy) from None


def each(items: Iterator[T]) -> Iterator[T | BadLineError]:
    """The items of an iterator that continues after errors, and the errors."""
    while True:
        try:
            yield next(items)
        except StopIteration:
            return
        except BadLineError as error:
            yield error
