"""Raw text files -> lines of text. Stage of the flow in `roberta_plugin/data/__init__.py`.

An input is plain text, JSON Lines with the text of one document in a field of each line, or a table with the text of
one document in a column of each row: CSV, TSV, Parquet or Arrow. All but the last two may be compressed (.gz, .zst,
.xz, .bz2). `text_inputs_files` detects the format. All text is UTF-8. Lines end as in Python's text mode, which fairseq
uses: at "\\n", "\\r\\n" or "\\r". An empty line separates documents. A byte order mark at the beginning of a file is
left out; zero bytes are an error, also as \\u0000 in JSON.

Plain files can be read in parts by byte (`text_inputs_lines`), Parquet and Arrow by row group (`text_inputs_columnar`).

Example: the file "ab\\n cd\\n\\nef" holds the lines "ab", "cd", "" and "ef": two documents. The same documents as JSON
Lines, and as CSV:

    {"text": "ab\\ncd"}          text
    {"text": "ef"}              "ab
                                cd"
                                ef
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from roberta_plugin.data.text_inputs_columnar import groups_of, num_rows_before
from roberta_plugin.data.text_inputs_files import TextFormat, TextInput, find_inputs
from roberta_plugin.data.text_inputs_lines import CORRECT_TEXT, BadLineError, read_lines
from roberta_plugin.data.text_inputs_tables import CELL_END, NO_TEXT, check_column, read_cells, separator
from roberta_plugin.json_files import parse_json
from roberta_plugin.settings import Checked, setting

_CORRECT_RECORD = "Correct it or give --text-column, or skip and count such lines with --skip-bad-lines."
_CORRECT_CELL = "Correct or leave out the row, or skip and count such rows with --skip-bad-lines."
_NOT_TEXT = (
    "A file with many zero bytes is binary, an archive or UTF-16: convert it first. `tr -d '\\000'` removes a few, and "
    "--skip-bad-lines skips and counts such lines."
)


@dataclass(frozen=True, kw_only=True)
class LineRules:
    """Rules for lines of text. The fields are options of `roberta binarize` and `roberta tokenizer train`.

    fairseq's encoder strips lines, so files identical to fairseq's need the default of `keep_spaces`.
    """

    keep_spaces: bool = setting(
        False,
        "keep white space at both ends of lines, which fairseq's encoder strips: better for code and verse, but the "
        "files then differ from fairseq's",
        road="text",
    )
    text_column: str = setting(
        "text",
        "column of a table, or field of a JSON Lines record, that holds the text",
        aliases=("--json-field",),
        road="text",
    )
    skip_bad_lines: bool = setting(
        False,
        "skip and count lines that are not valid UTF-8 or have zero bytes, not valid records or rows without text "
        "(default: stop with an error)",
        road="text",
    )
    split_sentences: bool = setting(
        False,
        "make each sentence a line of the .bin, which pretraining on pairs of texts needs (--input-format); "
        "SPLIT.paragraphs then says which lines began a line of the text",
        road="text",
    )


FAIRSEQ_RULES = LineRules()


@dataclass(frozen=True, kw_only=True)
class InputSettings(Checked):
    """How text files are read: with `LineRules`, options of `roberta binarize` and `roberta tokenizer train`."""

    rules: LineRules = FAIRSEQ_RULES
    text_format: TextFormat = setting(
        "auto",
        "format of the inputs (auto: by file name, and by content for .json files)",
        flag="--format",
        road="text",
    )
    delimiter: str = setting(",", "what separates the columns of CSV, such as ';' or '\\t'", road="text")

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        object.__setattr__(self, "delimiter", separator(self.delimiter))

    def sources(self, patterns: Iterable[str | os.PathLike[str]]) -> list[TextInput]:
        """The inputs that the user names; see `find_inputs`. Tables have the column of the text."""
        sources = find_inputs(
            patterns, text_format=self.text_format, column=self.rules.text_column, delimiter=self.delimiter
        )
        groups_of.cache_clear()  # files may have changed
        for source in sources:
            if source.is_table:
                check_column(source)
        return sources

    def check_used(self, sources: Iterable[TextInput]) -> None:
        """Refuse options for tables if none of the inputs is one."""
        forms = {source.form for source in sources}
        names = ", ".join(sorted(forms))
        if self.rules.text_column != FAIRSEQ_RULES.text_column and forms == {"text"}:
            raise ValueError(
                f"--text-column {self.rules.text_column} has no effect: the inputs are plain text, without columns. "
                "Leave it out, or say by --format what they are."
            )
        if self.delimiter != "," and forms.isdisjoint({"csv", "tsv"}):
            raise ValueError(
                f"--delimiter {self.delimiter!r} has no effect: the inputs are {names}, and it goes with CSV. Leave it "
                "out, or give --format csv."
            )


def read_blocks(source: TextInput, **options: Any) -> Iterator[bytes]:
    """Whole lines, records or cells of a table, in blocks for `lines_of`; see `read_lines` and `read_cells`.

    `start` and `end` choose a part: bytes of a plain file, row groups of Parquet and Arrow.
    """
    return read_cells(source, **options) if source.is_table else read_lines(source, **options)


def num_lines_before(source: TextInput, start: int) -> int:
    """Lines, or rows, before the part that begins at `start`."""
    if not start:
        return 0
    if source.is_columnar:
        return num_rows_before(source, start)
    return sum(count_lines(block, source) for block in read_lines(source, end=start))


def lines_of(block: bytes, *, source: TextInput, first_line: int, rules: LineRules) -> tuple[list[str], int]:
    """Lines of text in a block of `read_blocks`, and the number of bad lines that were skipped.

    Raises:
        BadLineError: at the first bad line, unless `rules.skip_bad_lines`.
    """
    if source.is_table:
        cells = enumerate(block.split(CELL_END)[:-1], start=first_line)
        return _lines_of_documents(
            cells, _text_of_cell, rules, partial(BadLineError, source.name, remedy=_CORRECT_CELL, unit="row")
        )
    if source.form == "jsonl":
        raw_lines = enumerate(_split(block.decode("latin-1")), start=first_line)
        records = ((number, raw.encode("latin-1")) for number, raw in raw_lines if raw.strip())

        def text_of(raw: bytes) -> str:
            return _text_of_record(raw, rules.text_column)

        return _lines_of_documents(records, text_of, rules, partial(BadLineError, source.name, remedy=_CORRECT_RECORD))
    try:
        if b"\0" in block:
            raise ValueError
        lines, num_bad = _split(block.decode("utf-8")), 0
    except ValueError:
        lines, num_bad = _lines_one_by_one(block, source.name, first_line, rules)
    return _trim(lines, rules), num_bad


def count_lines(block: bytes, source: TextInput) -> int:
    """Number of lines, or rows, in a block of `read_blocks`."""
    if source.is_table:
        return block.count(CELL_END)
    num_ends = block.count(b"\n")
    if b"\r" in block:
        num_ends += block.count(b"\r") - block.count(b"\r\n")
    return num_ends + (not block.endswith((b"\n", b"\r")))


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
        fault = ""
        try:
            line = raw.encode("latin-1").decode("utf-8")
            if "\0" in line:
                fault = f"byte 0x00 at column {line.index(chr(0))} is no text"
        except UnicodeDecodeError as error:
            byte, column = error.object[error.start], len(error.object[: error.start].decode("utf-8"))
            fault = f"byte 0x{byte:02x} at column {column} is not UTF-8"
        if not fault:
            lines.append(line)
        elif not rules.skip_bad_lines:
            raise BadLineError(path, number, fault, _NOT_TEXT if b"\0" in block else CORRECT_TEXT)
    return lines, len(raw_lines) - len(lines)


def _lines_of_documents(
    documents: Iterable[tuple[int, bytes]],
    text_of: Callable[[bytes], str],
    rules: LineRules,
    bad: Callable[[int, str], BadLineError],
) -> tuple[list[str], int]:
    """Lines of the documents, an empty line after each; empty lines inside are skipped, as they would end it."""
    lines: list[str] = []
    num_bad = 0
    for number, raw in documents:
        try:
            text = text_of(raw)
            if "\0" in text:
                raise ValueError(f"byte 0x00 at character {text.index(chr(0))} of its text is no text")
        except ValueError as error:
            if not rules.skip_bad_lines:
                raise bad(number, str(error)) from None
            num_bad += 1
            continue
        lines += [line for line in _trim(_split(text), rules) if line]
        lines.append("")
    return lines, num_bad


def _text_of_cell(raw: bytes) -> str:
    if raw.startswith(NO_TEXT):
        raise ValueError(raw[len(NO_TEXT) :].decode())
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"its text is not UTF-8 at byte {error.start}") from None


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
