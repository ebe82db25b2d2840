"""Raw text files -> lines of text. Stage of the flow in `roberta_plugin/data/__init__.py`.

An input is plain text, compressed text (.gz, .zst, .xz, .bz2), or JSON Lines (also compressed) with the text of one
document in a field of each line; `text_inputs_files` detects the format. All text is UTF-8. Lines end as in Python's
text mode, which fairseq uses: at "\\n", "\\r\\n" or "\\r". An empty line separates documents.

A plain file can be read in parts: the part [start, end) owns the lines whose first byte lies in it. Parts that cover
the file therefore cover each line exactly once, wherever the cuts are.

Example: the file "ab\\n cd\\n\\nef" holds the lines "ab", "cd", "" and "ef": two documents. Its part [0, 5) holds
"ab" and "cd"; its part [5, 10) holds "" and "ef". The same documents as JSON Lines:

    {"text": "ab\\ncd"}
    {"text": "ef"}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO

from roberta_plugin.data.text_inputs_files import (
    CountedFile,
    TextFormat,
    TextInput,
    decompressed_pieces,
    looks_like_json_lines,
    open_input,
    read_ahead,
    unclear_format_error,
)
from roberta_plugin.json_files import parse_json
from roberta_plugin.settings import Checked, setting

BLOCK_BYTES = 2**20
LONGEST_LINE = 2**28  # bytes; a few megabytes of .gz may hold one line of gigabytes
_LINE_END = re.compile(rb"\n|\r(?!\n)")
_CORRECT_TEXT = "Convert the file to UTF-8 or correct the line, or skip and count such lines with --skip-bad-lines."
_CORRECT_RECORD = "Correct it or give --json-field, or skip and count such lines with --skip-bad-lines."
_NOT_TEXT = "This is a binary file or UTF-16, not UTF-8 text: convert it first. --skip-bad-lines does not help here."


@dataclass(frozen=True, kw_only=True)
class LineRules:
    """What counts as a line of text; the fields are options of `roberta binarize` and `roberta tokenizer train`.

    fairseq's encoder strips lines, so files identical to fairseq's need the default of `keep_spaces`.
    """

    keep_spaces: bool = setting(
        False,
        "keep white space at both ends of lines, which fairseq's encoder strips: better for code and verse, but the "
        "files then differ from fairseq's",
    )
    json_field: str = setting("text", "field of a JSON Lines record that holds the text")
    skip_bad_lines: bool = setting(
        False,
        "skip and count lines that are not valid UTF-8 or not valid records (default: stop with an error)",
    )
    split_sentences: bool = setting(
        False,
        "make each sentence a line of the .bin, which pairs of texts need (--input-format segment-pair and "
        "sentence-pair); SPLIT.paragraphs then says which lines began a line of the text",
    )


FAIRSEQ_RULES = LineRules()


@dataclass(frozen=True, kw_only=True)
class InputSettings(Checked):
    """How text files are read: with `LineRules`, options of `roberta binarize` and `roberta tokenizer train`."""

    rules: LineRules = FAIRSEQ_RULES
    text_format: TextFormat = setting(
        "auto",
        "format of the inputs, text or JSON Lines (auto: by file name, and by content for .json files)",
        flag="--format",
    )


class BadLineError(ValueError):
    """A line that cannot be read as text; its message names the file, the line and the remedy."""

    def __init__(self, path: str, line: int, reason: str, remedy: str = _CORRECT_TEXT) -> None:
        super().__init__(path, line, reason, remedy)
        self.path, self.line, self.reason, self.remedy = path, line, reason, remedy

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}. {self.remedy}"


def read_blocks(
    source: TextInput,
    *,
    start: int = 0,
    end: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_read: Callable[[int], None] = lambda num_bytes: None,
    on_data: Callable[[bytes], None] = lambda data: None,
) -> Iterator[bytes]:
    """Whole lines in blocks of about `block_bytes`; a block is larger only if a single line is.

    `start` and `end` choose a part of a plain file, in bytes (see the head of this module). `on_read` gets the number
    of bytes read from disk; `on_data` gets the bytes of a pipe or compressed file.

    Raises:
        ValueError: if a compressed file is damaged or cut off, a pipe contains JSON Lines without --format, or a line
            is longer than `LONGEST_LINE`.
    """
    pieces = _plain(source.path, start, end, block_bytes)
    if source.is_sequential:
        pieces = read_ahead(_sequential(source, block_bytes, on_data))
    unfinished: list[bytes] = []
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
        yield b"".join([*unfinished, piece[:cut]])
        unfinished = [piece[cut:]]
    if rest := b"".join(unfinished):
        yield rest


def lines_of(block: bytes, *, source: TextInput, first_line: int, rules: LineRules) -> tuple[list[str], int]:
    """Lines of text in a block of `read_blocks`, and the number of bad lines that were skipped.

    Raises:
        BadLineError: at the first bad line, unless `rules.skip_bad_lines`.
    """
    if source.is_jsonl:
        return _lines_of_records(block, source.name, first_line, rules)
    try:
        lines, num_bad = _split(block.decode("utf-8")), 0
    except UnicodeDecodeError:
        lines, num_bad = _lines_one_by_one(block, source.name, first_line, rules)
    return _trim(lines, rules), num_bad


def count_lines(block: bytes) -> int:
    """Number of lines in a block of `read_blocks`."""
    num_ends = block.count(b"\n")
    if b"\r" in block:
        num_ends += block.count(b"\r") - block.count(b"\r\n")
    return num_ends + (not block.endswith((b"\n", b"\r")))


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


def _split(text: str) -> list[str]:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # nothing follows the last line end
    return lines


def _trim(lines: list[str], rules: LineRules) -> list[str]:
    """Strip lines; with `keep_spaces` only lines of white space, which separate documents like empty lines."""
    if rules.keep_spaces:
        return [line if line and not line.isspace() else "" for line in lines]
    return [line.strip() for line in lines]


def _lines_one_by_one(block: bytes, path: str, first_line: int, rules: LineRules) -> tuple[list[str], int]:
    lines: list[str] = []
    # Latin-1 maps bytes to characters one to one, so lines can be split before they are decoded.
    raw_lines = _split(block.decode("latin-1"))
    for number, raw in enumerate(raw_lines, start=first_line):
        try:
            lines.append(raw.encode("latin-1").decode("utf-8"))
        except UnicodeDecodeError as error:
            if not rules.skip_bad_lines:
                byte, column = error.object[error.start], len(error.object[: error.start].decode("utf-8"))
                raise BadLineError(
                    path,
                    number,
                    f"byte 0x{byte:02x} at column {column} is not UTF-8",
                    _NOT_TEXT if b"\0" in block else _CORRECT_TEXT,
                ) from None
    return lines, len(raw_lines) - len(lines)


def _lines_of_records(block: bytes, path: str, first_line: int, rules: LineRules) -> tuple[list[str], int]:
    """Lines of the documents, an empty line after each; empty lines inside are skipped, as they would end it."""
    lines: list[str] = []
    num_bad = 0
    for number, raw in enumerate(_split(block.decode("latin-1")), start=first_line):
        if not raw.strip():
            continue
        try:
            text = _text_of_record(raw.encode("latin-1"), rules.json_field)
        except ValueError as error:
            if not rules.skip_bad_lines:
                raise BadLineError(path, number, str(error), _CORRECT_RECORD) from None
            num_bad += 1
            continue
        lines += [line for line in _trim(_split(text), rules) if line]
        lines.append("")
    return lines, num_bad


def _text_of_record(raw: bytes, field: str) -> str:
    try:
        record = parse_json(raw)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error})") from None
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        raise ValueError(f'not a JSON object with text in its field "{field}"')
    text: str = record[field]
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f'half of a surrogate pair in the field "{field}"') from None
    return text
