"""Text inputs -> whole lines, in blocks of bytes. Used by `text_inputs` and `text_inputs_tables`.

A plain file can be read in parts: the part [start, end) owns the lines whose first byte lies in it. Parts that cover
the file therefore cover each line exactly once, wherever the cuts are.

Example: the part [0, 5) of "ab\\n cd\\n\\nef" holds the lines "ab" and " cd"; its part [5, 10) holds "" and "ef".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO

from roberta_plugin.data.text_inputs_files import (
    CountedFile,
    TextInput,
    decompressed_pieces,
    looks_like_json_lines,
    open_input,
    read_ahead,
    unclear_format_error,
)

BLOCK_BYTES = 2**20
LONGEST_LINE = 2**28  # bytes; a few megabytes of .gz may hold one line of gigabytes
BOM = b"\xef\xbb\xbf"  # some editors begin a file with it; it is no text
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
        """The error, if there are so many lines before those in which the line was counted."""
        return BadLineError(self.path, num_lines + self.line, self.reason, self.remedy, self.unit)


def read_lines(
    source: TextInput,
    *,
    start: int = 0,
    end: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    on_data: Callable[[bytes], None] = lambda data: None,
) -> Iterator[bytes]:
    """Whole lines in blocks of about `block_bytes`; a block is larger only if a single line is.

    A byte order mark at the beginning of a file is left out, as Python's utf-8-sig does; fairseq takes it for text.
    `start` and `end` choose a part of a plain file, in bytes (see the head of this module). `on_read` gets the number
    of bytes read from disk; `on_data` gets the bytes of what is read from its beginning.

    Raises:
        ValueError: if a compressed file is damaged or cut off, a pipe contains JSON Lines without --format, or a line
            is longer than `LONGEST_LINE`.
    """
    pieces = _plain(source.path, start, end, block_bytes)
    if source.is_sequential:
        pieces = read_ahead(_sequential(source, block_bytes, on_data))
    unfinished: list[bytes] = []
    mark = b"" if start else BOM
    for piece, num_read in pieces:
        on_read(num_read)
        cut = piece.rfind(b"\n") + 1 or piece.rfind(b"\r", 0, -1) + 1
        if not cut:
            unfinished.append(piece)
            if (num_bytes := sum(map(len, unfinished))) > LONGEST_LINE:
                raise ValueError(
                    f"{source.name}: a line has more than {num_bytes >> 20} MiB. Split the text into lines; of a file "
                    "of text, that is a sign of damage or of another format."
                )
            continue
        yield b"".join([*unfinished, piece[:cut]]).removeprefix(mark)
        unfinished, mark = [piece[cut:]], b""
    if rest := b"".join(unfinished).removeprefix(mark):
        yield rest


def _sequential(source: TextInput, block_bytes: int, on_data: Callable[[bytes], None]) -> Iterator[tuple[bytes, int]]:
    """Content of a pipe or compressed file in pieces, each with the number of bytes read for it."""
    with open_input(source.path) as opened:
        file = CountedFile(opened, on_data)
        suffix = file.suffix() if source.is_stream else source.suffix
        pieces = decompressed_pieces(file, suffix, source.name, block_bytes) if suffix else _as_it_is(file, block_bytes)
        for piece, num_read in pieces:
            if source.is_unknown and piece:
                if looks_like_json_lines(piece):
                    raise unclear_format_error(source.name)
                source = replace(source, is_unknown=False)
            yield piece, num_read


def _as_it_is(file: CountedFile, block_bytes: int) -> Iterator[tuple[bytes, int]]:
    while piece := file.read(block_bytes):
        yield piece, len(piece)


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
