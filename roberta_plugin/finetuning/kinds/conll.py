"""Files of tagged words -> checked examples: `texts` are the words, `target` the tags, `group` is the document.

    CoNLL columns   a word per line with its columns, separated by tabs or spaces; a blank line ends a sentence;
                    -DOCSTART- begins a document
    JSON Lines      {"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"]}, perhaps with "document"

JSON Lines are recognized by their name, and all else is columns; both as `roberta_plugin/tables.py` reads text. Columns
are cut at tabs if the line has any, so that words may then hold spaces, else at spaces; other white space and invisible
characters are part of a word. A line of white space alone is blank (WNUT-17 ends its sentences with a tab).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.examples import Example
from roberta_plugin.tables import check_list, check_text, named_format, read_table, short, text_lines

_DOCUMENT = "-DOCSTART-"
_COLUMN_OPTIONS = ("--tokens-column", "--tags-column")
Columns = tuple[str | None, str | None]
_TOKEN_FIELDS, _TAG_FIELDS = ("tokens", "words"), ("tags", "ner_tags", "labels")


def _sentence(path: Path, line: int, words: tuple[str, ...], tags: tuple[str, ...] | None, document: int) -> Example:
    """A sentence whose first word is in a line; `document` is a number from 0 on, or -1 if the file names none."""
    return Example(path, line, str(line), words, tags, group="" if document < 0 else str(document))


def read_file(
    path: Path, *, columns: Columns = (None, None), needs_tags: bool, called: tuple[str, str] = _COLUMN_OPTIONS
) -> list[Example]:
    """Read and check a file.

    `columns` of words and tags are names or numbers, None: the usual ones; `called` are the options that name them.
    """
    is_json = named_format(path) == "jsonl"
    sentences = list(_read_json(path, columns) if is_json else _read_columns(path, columns, called))
    if not any(sentence.texts for sentence in sentences):
        raise ValueError(f"{path} holds no words: give a file of tagged words.")
    for sentence in sentences:
        if sentence.target is None and needs_tags:
            raise ValueError(
                f"{sentence.place_of_word(0)}: there are no tags, which only a test file may lack. Add them, or name "
                "their column: --tags-column."
            )
        if (sentence.target is None) != (sentences[0].target is None):
            raise ValueError(
                f"{sentence.place_of_word(0)}: some sentences have tags and some have none. Correct the file."
            )
    return sentences


def _read_columns(path: Path, wanted: Columns, called: tuple[str, str]) -> Iterator[Example]:
    lines = [line.rstrip("\r\n") for line in text_lines(path)]
    columns = _Columns(path, wanted, called)
    words: list[str] = []
    tags: list[str] = []
    first_mark = next((place for place, line in enumerate(lines) if line.lstrip(" ").startswith(_DOCUMENT)), None)
    has_words_before = any(line.strip() for line in lines[:first_mark])
    documents, first = 0 if has_words_before else -1, 0

    def sentence() -> Example:
        tagged = tuple(tags) if columns.has_tags else None
        return _sentence(path, first, tuple(words), tagged, -1 if first_mark is None else documents)

    for number, line in enumerate([*lines, ""], start=1):
        cells = _cells(line)
        is_word = bool(line.strip()) and not cells[0].startswith(_DOCUMENT)
        if not is_word and words:
            yield sentence()
            words, tags = [], []
        if not is_word:
            documents += bool(line.strip())
        elif columns.are_known(cells):
            word, tag = columns.of(cells, number)
            first = first if words else number
            words.append(word)
            tags.append(tag)


def _cells(line: str) -> list[str]:
    """Example: "New York\\tB-LOC" -> ["New York", "B-LOC"]; "EU NNP  B-ORG" -> ["EU", "NNP", "B-ORG"]."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell] or [""]


class _Columns:
    """The columns of words and tags in a file."""

    def __init__(self, path: Path, wanted: Columns, called: tuple[str, str]) -> None:
        self._path, self._num_cells, self._called = path, 0, called
        self._wanted = wanted
        self._has_header = any(name is not None and not name.isdecimal() for name in self._wanted)
        self._words = self._tags = 0
        self.has_tags = True

    def are_known(self, cells: list[str]) -> bool:
        """Whether the columns are known; the first line may be a header that names them."""
        if self._num_cells:
            return True
        self._num_cells = len(cells)
        words, tags = self._wanted
        self._words = self._place(words or "1", self._called[0], cells)
        self.has_tags = len(cells) > 1 or tags is not None
        self._tags = self._place(tags or str(len(cells)), self._called[1], cells)
        if self._words == self._tags and self.has_tags:
            raise ValueError(
                f"{self._path}: words and tags are both in column {self._words + 1}: give two different ones by "
                f"{' and '.join(self._called)}."
            )
        return not self._has_header

    def _place(self, name: str, option: str, cells: list[str]) -> int:
        if not name.isdecimal():
            if name not in cells:
                raise ValueError(
                    f"{self._path}: {option} {name}, but the first line names the columns {', '.join(cells)[:200]}. "
                    "Give one of them, or a number from 1 on."
                )
            return cells.index(name)
        if not 1 <= int(name) <= len(cells):
            raise ValueError(f"{self._path}: {option} {name}, but the first line has {len(cells)} columns.")
        return int(name) - 1

    def of(self, cells: list[str], number: int) -> tuple[str, str]:
        """The word and the tag of a line."""
        if len(cells) != self._num_cells:
            raise ValueError(
                f"{self._path}, line {number} has {len(cells)} columns, and the first line {self._num_cells}: "
                f"{short(' '.join(cells))}. Correct the line; columns are separated by tabs or spaces."
            )
        word, tag = cells[self._words], cells[self._tags]
        if self.has_tags and not tag:
            raise ValueError(f"{self._path}, line {number}: the tag of {word!r} is empty. Write O if it has none.")
        return word, tag


def _read_json(path: Path, wanted: Columns) -> Iterator[Example]:
    documents, before = -1, object()
    for row in read_table(path):
        record, where = row.values, row.where
        words = _list_of(record, wanted[0], _TOKEN_FIELDS, "--tokens-column", where)
        if words is None:
            raise ValueError(f"{where} lacks the field {_TOKEN_FIELDS[0]}. Add it, or name another: --tokens-column.")
        tags = _list_of(record, wanted[1], _TAG_FIELDS, "--tags-column", where)
        if tags is not None and len(tags) != len(words):
            raise ValueError(f"{where} has {len(words)} words and {len(tags)} tags. Give one tag to each word.")
        document = record.get("document")
        if document is not None and document != before:
            documents, before = documents + 1, document
        yield _sentence(path, row.line, words, tags, -1 if document is None else documents)


def _list_of(
    record: Mapping[str, Any], name: str | None, usual: tuple[str, ...], option: str, where: str
) -> tuple[str, ...] | None:
    """The texts in a field of a record: that of the option, or the first usual one that is there."""
    if name is not None and name not in record:
        raise ValueError(f"{where} lacks the field {name} of {option}: it has {', '.join(record) or 'none'}.")
    name = name or next((field for field in usual if field in record), None)
    if name is None or record[name] is None:
        return None
    values = check_list(record[name], name, where)
    is_tag = option == "--tags-column"
    if is_tag and any(type(value) is int for value in values):
        raise ValueError(f"{where}: {name} holds numbers: write the names of the tags, such as B-PER.")
    return tuple(
        check_text(value, f"{name}, entry {place + 1},", where, may_be_empty=not is_tag)
        for place, value in enumerate(values)
    )
