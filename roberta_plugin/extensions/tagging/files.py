"""Files of tagged words -> examples whose `texts` are the words, `target` the tags, and `group` the document.

    CoNLL columns   a word per line with its columns, separated by tabs or spaces; a blank line ends a sentence;
                    -DOCSTART- begins a document
    CoNLL-U         (.conllu) ten columns with tabs. FORM and UPOS are read, or other columns by name or number, or a
                    key of FEATS or MISC. Of a token of several words, such as 3-4, its words 3 and 4 are read; empty
                    nodes, such as 8.1, are left out
    lists           JSON Lines, Parquet, Arrow, CSV: {"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"]}, perhaps
                    with "document"

The name of a file says which format it has; a file with any other name is read as columns. A line is cut at tabs if it
has any, so that words may hold spaces, else at spaces. Other white space and invisible characters are part of a word. A
line of white space alone is blank (WNUT-17 ends its sentences with a tab).

Columns may have comments, such as "# id 17", before the first word of a sentence. A line there that begins with # and
white space is a comment unless it looks like a word: it has as many columns as the words, and a tag of another line.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.label_names import OPTION, Numbering, numbering_of, whole_number
from roberta_plugin.finetuning.records import values_of
from roberta_plugin.spelling import meant
from roberta_plugin.tables import (
    Row,
    check_list,
    check_text,
    named_format,
    read_table,
    short,
    text_lines,
    without_compression,
)

logger = logging.getLogger(__name__)

LISTS = ("jsonl", "parquet", "arrow", "csv")  # formats with lists of words
ENDINGS = (".conll", ".bio", ".iob", ".iob2", ".conllu", ".conllup")  # only files of tags have these
_DOCUMENT = "-DOCSTART-"
_COLUMN_OPTIONS = ("--tokens-column", "--tags-column")
Columns = tuple[str | None, str | None]
TOKEN_FIELDS, TAG_FIELDS = ("tokens", "words"), ("tags", "ner_tags", "labels")
_COMMENT = re.compile(r"#+(\s|$)")
_NAMED_COMMENT = re.compile(r"#\s*\w+\s*=")
_NO_WORD = re.compile(r"\d+[-.]\d+")  # a token of several words, or an empty node, by the first column of CoNLL-U


def is_universal(path: Path) -> bool:
    """True if a file is CoNLL-U, by its name."""
    return without_compression(path).endswith((".conllu", ".conllup"))


def _sentence(
    path: Path, words: Sequence[str], tags: Sequence[str] | None, document: int, lines: Sequence[int]
) -> Example:
    """A sentence; `document` is a number from 0 on, or -1 if the file has no documents."""
    are_in_order = list(lines) == list(range(lines[0], lines[0] + len(lines)))
    return Example(
        path,
        lines[0],
        str(lines[0]),
        tuple(words),
        None if tags is None else tuple(tags),
        group="" if document < 0 else str(document),
        lines=() if are_in_order else tuple(lines),
    )


def read_file(
    path: Path,
    *,
    columns: Columns = (None, None),
    needs_tags: bool,
    called: tuple[str, str] = _COLUMN_OPTIONS,
    reads_tags: bool = True,
    label_names: Sequence[str] | None = None,
    are_numbers: bool = False,
) -> list[Example]:
    """Read and check a file.

    `columns` are the names or numbers of the columns of words and tags; None: the usual ones. `called` are the options
    that name them. Without `reads_tags`, tags are not looked for. `label_names` are the values of --label-names. With
    `are_numbers`, tags that are numbers are labels as they are.
    """
    if named_format(path) in LISTS:
        sentences = list(_read_lists(path, columns, called))
    elif is_universal(path):
        sentences = list(_read_universal(path, columns, called, reads_tags=reads_tags))
    else:
        sentences = list(_read_columns(path, columns, called, reads_tags=reads_tags))
    if not any(sentence.texts for sentence in sentences):
        raise ValueError(f"{path} holds no words: give a file of tagged words.")
    if reads_tags:
        sentences = _name_tags(path, sentences, columns[1], called[1], label_names, needs_tags, are_numbers)
    if columns[0] is None and named_format(path) not in LISTS and not is_universal(path):
        _check_words(path, sentences, called)
    for sentence in sentences:
        if sentence.target is None and needs_tags:
            raise ValueError(
                f"{sentence.place_of_word(0)}: there are no tags, and only a test file may omit them. Add them, or "
                f"name their column by {called[1]}."
            )
        if (sentence.target is None) != (sentences[0].target is None):
            raise ValueError(
                f"{sentence.place_of_word(0)}: some sentences have tags and some have none. Correct the file."
            )
    return sentences


def _check_words(path: Path, sentences: Sequence[Example], called: tuple[str, str]) -> None:
    """Refuse a first column that numbers the words of each sentence, as in UNER, GermEval and CoNLL-U."""
    numbers = [[text for text in each.texts if not _NO_WORD.fullmatch(text)] for each in sentences]
    if sum(len(each.texts) > 1 for each in sentences) and all(
        of_words == [str(number) for number in range(1, len(of_words) + 1)] for of_words in numbers
    ):
        raise ValueError(
            f"{path}: the first column numbers the words of each sentence. Name the columns of the words and the tags, "
            f"such as {called[0]} 2 {called[1]} 3; a file of Universal Dependencies is called .conllu."
        )


def _name_tags(
    path: Path,
    sentences: list[Example],
    column: str | None,
    option: str,
    given: Sequence[str] | None,
    needs_tags: bool,
    are_numbers: bool,
) -> list[Example]:
    """The sentences with names for tags that are numbers.

    A text whose tags are all -1 has no tags. Where tags are needed, or other texts have some, such texts are left out.
    """
    if named_format(path) not in LISTS and given is None:
        return sentences
    field = column or _field_of_tags(path)
    cells = [(each.where, list(each.target)) for each in sentences if each.target is not None]
    numbering = numbering_of(path, field, cells, given=given)
    numbering.log(path, field)
    named: list[Example] = []
    num_marked = 0
    for sentence in sentences:
        if sentence.target and numbering.is_none(list(sentence.target)):
            num_marked += 1
            named.append(sentence._replace(target=None))
        elif sentence.target is None:
            named.append(sentence)
        else:
            tags = _names_of_tags(sentence, numbering, option, are_numbers=are_numbers)
            named.append(sentence._replace(target=tags))
    if num_marked and (needs_tags or num_marked < len(named)):
        logger.warning(
            f"{path}: {num_marked:,} of {len(named):,} texts are left out, because all their tags are -1, which means "
            "no tag."
        )
        named = [each for each in named if each.target is not None]
        if not named:
            raise ValueError(f"{path}: all tags are -1, which means no tag. Only a test file may have no tags.")
    return named


def _names_of_tags(sentence: Example, numbering: Numbering, option: str, *, are_numbers: bool) -> tuple[str, ...]:
    """The tags of a sentence as texts; refuses numbers without names unless they are labels as they are."""
    tags = [numbering.name(tag, sentence.place_of_word(word)) for word, tag in enumerate(sentence.target)]
    if are_numbers:
        tags = [str(tag) if type(tag) is int else tag for tag in tags]
    elif not numbering.names:
        check_named([tag for tag in tags if not isinstance(tag, str)], sentence.where, option)
    return tuple(check_text(tag, f"tag {word + 1},", sentence.where) for word, tag in enumerate(tags))


def _field_of_tags(path: Path) -> str:
    """The field of the tags in a file of lists, if no option names it, as `_read_lists` finds it."""
    row = next(iter(read_table(path)), None) if named_format(path) in LISTS else None
    return next((name for name in TAG_FIELDS if row is not None and name in row.values), TAG_FIELDS[0])


def _read_columns(path: Path, wanted: Columns, called: tuple[str, str], *, reads_tags: bool) -> Iterator[Example]:
    lines = [line.rstrip("\r\n") for line in text_lines(path)]
    columns = _Columns(path, wanted, called, reads_tags=reads_tags)
    comments = _find_comments(lines, columns)
    if comments:
        logger.warning(
            f"{path}: {len(comments):,} lines, such as {short(lines[min(comments)])}, are left out as comments"
        )
    words: list[str] = []
    tags: list[str] = []
    numbers: list[int] = []
    first_mark = next((place for place, line in enumerate(lines) if line.lstrip(" ").startswith(_DOCUMENT)), None)
    has_words_before = any(line.strip() for line in lines[:first_mark])
    documents = 0 if has_words_before else -1
    for number, line in enumerate([*lines, ""], start=1):
        if number - 1 in comments:
            continue
        cells = _cells(line)
        is_word = bool(line.strip()) and not cells[0].startswith(_DOCUMENT)
        if not is_word and words:
            yield _sentence(
                path, words, tags if columns.has_tags else None, -1 if first_mark is None else documents, numbers
            )
            words, tags, numbers = [], [], []
        if not is_word:
            documents += bool(line.strip())
        elif columns.are_known(cells):
            word, tag = columns.read(cells, number)
            numbers.append(number)
            words.append(word)
            tags.append(tag)


def _find_comments(lines: Sequence[str], columns: _Columns) -> set[int]:
    """The places of the lines that are comments; see the head of this file.

    Candidates are lines before a sentence, such as "# id 17" and "#text = EU", but not a header with a wanted column.
    """
    candidates: list[int] = []
    others: list[list[str]] = []
    is_begin = True
    for place, line in enumerate(lines):
        is_blank = not line.strip() or line.lstrip(" ").startswith(_DOCUMENT)
        is_named = is_begin and _NAMED_COMMENT.match(line)
        if is_begin and (_COMMENT.match(line) or is_named) and not (columns.are_named_by(_cells(line)) and not others):
            candidates.append(place)
        elif not is_blank:
            others.append(_cells(line))
            is_begin = False
        else:
            is_begin = True
    if not others or not candidates:
        return set()
    number, tag = len(others[0]), columns.place_of_tag(others[0])
    known = {cells[tag] for cells in others if tag < len(cells)}
    fitting = [place for place in candidates if len(_cells(lines[place])) == number]
    counts = Counter(_cells(lines[place])[tag] for place in fitting)
    are_words = {
        place
        for place in fitting
        for own in [_cells(lines[place])[tag]]
        if number == 1  # "#" in a file of words alone
        or own in known  # "# O", with the tag of other words
        or counts[own] > 1  # "# SYM" twice
        or not _COMMENT.match(lines[place])  # "#text =", which is a comment only with other columns than the words
    }
    return {*candidates} - are_words


def _cells(line: str) -> list[str]:
    """Example: "New York\\tB-LOC" -> ["New York", "B-LOC"]; "EU NNP  B-ORG" -> ["EU", "NNP", "B-ORG"]."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell] or [""]


class _Columns:
    """The columns of words and tags in a file."""

    def __init__(self, path: Path, wanted: Columns, called: tuple[str, str], *, reads_tags: bool) -> None:
        self._path, self._num_cells, self._called = path, 0, called
        self._wanted = wanted if reads_tags else (wanted[0], None)
        self._has_header = any(name is not None and not name.isdecimal() for name in self._wanted)
        self._words = self._tags = 0
        self.has_tags = reads_tags

    def are_named_by(self, cells: list[str]) -> bool:
        """True if the cells are a header with a wanted name."""
        return self._has_header and any(name in cells for name in self._wanted if name and not name.isdecimal())

    def place_of_tag(self, cells: list[str]) -> int:
        """The place of the tag in lines such as this one."""
        tags = self._wanted[1]
        if tags is None:
            return len(cells) - 1
        return cells.index(tags) if tags in cells and not tags.isdecimal() else int(tags) - 1 if tags.isdecimal() else 0

    def are_known(self, cells: list[str]) -> bool:
        """True if the line has words; finds the columns by the first line, which may be a header that names them."""
        if self._num_cells:
            return True
        self._num_cells = len(cells)
        words, tags = self._wanted
        self._words = self._place(words or "1", self._called[0], cells)
        self.has_tags = self.has_tags and (len(cells) > 1 or tags is not None)
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
                other = meant(name, cells)
                question = "" if other is None else f"Is {other!a} meant, which differs only in spelling? "
                raise ValueError(
                    f"{self._path}: {option} {name}, but the first line names the columns {', '.join(cells)[:200]}. "
                    f"{question}Give one of them, or a number from 1 on."
                )
            return cells.index(name)
        if not 1 <= int(name) <= len(cells):
            raise ValueError(f"{self._path}: {option} {name}, but the first line has {len(cells)} columns.")
        return int(name) - 1

    def read(self, cells: list[str], number: int) -> tuple[str, str]:
        """The word and the tag of a line."""
        if len(cells) != self._num_cells:
            raise ValueError(
                f"{self._path}, line {number} has {len(cells)} columns, and the first line {self._num_cells}: "
                f"{short(' '.join(cells))}. Correct the line. Columns are separated by tabs or spaces. Comments begin "
                "with '# ' and precede the first word of a sentence."
            )
        word, tag = cells[self._words], cells[self._tags]
        if self.has_tags and not tag:
            raise ValueError(f"{self._path}, line {number}: the tag of {word!r} is empty. Write O if it has none.")
        return word, tag


_UNIVERSAL = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=(.*)")  # the header of CoNLL-U Plus
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
_EMPTY = "_"
_RANGES, _EMPTY_NODES = "3-4", "8.1"


class _Word(NamedTuple):
    """A word of CoNLL-U."""

    line: int
    cells: list[str]


def _read_universal(path: Path, wanted: Columns, called: tuple[str, str], *, reads_tags: bool) -> Iterator[Example]:
    names, sentences, counts = _universal_sentences(path)
    words = _UniversalColumn(path, names, wanted[0] or "FORM", called[0], sentences)
    tags = _UniversalColumn(path, names, wanted[1] or "UPOS", called[1], sentences) if reads_tags else None
    if tags is not None and words.name == tags.name:
        raise ValueError(f"{path}: words and tags are both {words.name}: give two by {' and '.join(called)}.")
    if tags is not None and all(tags.value(word) == _EMPTY for _, of_sentence in sentences for word in of_sentence):
        tags = None  # files of shared tasks may leave all tags empty
    remarks = [
        f"{number:,} {one if number == 1 else several}"
        for number, one, several in (
            (counts[_RANGES], "token such as 3-4 is read as its words", "tokens such as 3-4 are read as their words"),
            (counts[_EMPTY_NODES], "empty node is skipped", "empty nodes are skipped"),
        )
        if number
    ]
    read = f"the words are {words.name}" + (f", the tags {tags.name}" if tags else "")
    logger.warning(f"{path}: {'; '.join([read, *remarks])}")
    for document, of_sentence in sentences:
        lines = [word.line for word in of_sentence]
        texts = [words.value(word) for word in of_sentence]
        yield _sentence(
            path, texts, None if tags is None else [tags.value(word) for word in of_sentence], document, lines
        )


def _universal_sentences(path: Path) -> tuple[list[str], list[tuple[int, list[_Word]]], Counter[str]]:
    """The names of the columns, the document and words of each sentence, and how many lines are not words."""
    names, document, words = list(_UNIVERSAL), -1, list[_Word]()
    sentences: list[tuple[int, list[_Word]]] = []
    counts: Counter[str] = Counter()
    for number, text in enumerate([*text_lines(path), ""], start=1):
        line = text.rstrip("\r\n")
        if line.startswith("#"):
            if found := _GLOBAL_COLUMNS.match(line):
                names = found[1].split()
            document += bool(_NEW_DOCUMENT.match(line))
        elif not line.strip():
            if words:
                sentences.append((document, words))
            words = []
        else:
            cells = _universal_cells(line, names, f"{path}, line {number}")
            id_ = cells[names.index("ID")] if "ID" in names else "1"
            if id_.isdecimal():
                words.append(_Word(number, cells))
            else:
                counts[_not_a_word(id_, f"{path}, line {number}")] += 1
    return names, sentences, counts


def _universal_cells(line: str, names: Sequence[str], where: str) -> list[str]:
    cells = line.split("\t")
    if len(cells) != len(names):
        raise ValueError(
            f"{where} has {len(cells)} columns, and CoNLL-U has {len(names)}, separated by tabs: {short(line)}. "
            "Correct the line, or let the name end in .conll if these are other columns."
        )
    return cells


def _not_a_word(id_: str, where: str) -> str:
    """What a line of CoNLL-U holds whose ID is not a whole number."""
    if re.fullmatch(r"\d+-\d+", id_):
        return _RANGES
    if re.fullmatch(r"\d+\.\d+", id_):
        return _EMPTY_NODES
    raise ValueError(
        f"{where}: {short(id_)} is not the number of a word, such as 3, 3-4 or 8.1. Correct the line, or let the name "
        "end in .conll if these are other columns."
    )


class _UniversalColumn:
    """A column of CoNLL-U, or a key of FEATS or MISC."""

    def __init__(
        self, path: Path, names: list[str], wanted: str, option: str, sentences: Sequence[tuple[int, list[_Word]]]
    ) -> None:
        self._key, self.name = "", wanted
        by_name = {name.casefold(): place for place, name in enumerate(names)}
        if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
            self._places = [int(wanted) - 1]
            self.name = names[self._places[0]]
        elif wanted.casefold() in by_name:
            self._places = [by_name[wanted.casefold()]]
            self.name = names[self._places[0]]
        else:
            self._key = wanted
            self._places = [place for place, name in enumerate(names) if name in ("FEATS", "MISC")]
            words = [word for _, of_sentence in sentences for word in of_sentence]
            if words and not any(self._value_of_key(word) for word in words):
                keys = {
                    each.partition("=")[0]: None
                    for word in words
                    for place in self._places
                    for each in word.cells[place].split("|")
                    if "=" in each
                }
                raise ValueError(
                    f"{path}: {option} {wanted} is none of the columns {', '.join(names)}, and none of the features "
                    f"{', '.join(keys)[:200] or '(there are none)'}. Give one of them, or a number from 1 on."
                )

    def _value_of_key(self, word: _Word) -> str:
        for place in self._places:
            for each in word.cells[place].split("|"):
                key, equals, value = each.partition("=")
                if equals and key == self._key:
                    return value
        return ""

    def value(self, word: _Word) -> str:
        """The value of a word in this column; _ if it has none."""
        return (self._value_of_key(word) if self._key else word.cells[self._places[0]].strip()) or _EMPTY


def _read_lists(path: Path, wanted: Columns, called: tuple[str, str]) -> Iterator[Example]:
    documents, before = -1, object()
    for row in read_table(path):
        record, where = row.values, row.where
        words = _read_list(row, wanted[0], TOKEN_FIELDS, called[0])
        if words is None:
            raise ValueError(f"{where} has no field {TOKEN_FIELDS[0]}. Add it, or name another one by {called[0]}.")
        tags = _read_list(row, wanted[1], TAG_FIELDS, called[1], are_tags=True)
        if tags is not None and len(tags) != len(words):
            raise ValueError(f"{where} has {len(words)} words and {len(tags)} tags. Give one tag to each word.")
        document = record.get("document")
        if document is not None and document != before:
            documents, before = documents + 1, document
        group = "" if document is None else str(documents)
        yield Example(path, row.line, str(row.line), words, tags, group=group)


def _read_list(
    row: Row, name: str | None, usual: tuple[str, ...], option: str, *, are_tags: bool = False
) -> tuple[Any, ...] | None:
    """The texts or tags in a field of a record: the field of the option, or the first usual one that the record has."""
    record: Mapping[str, Any] = row.values
    if name is not None and name not in record:
        raise ValueError(
            f"{row.where} has no field {name}, which {option} names: it has {', '.join(record) or 'none'}."
        )
    name = name or next((field for field in usual if field in record), None)
    if name is None or record[name] is None:
        return None
    if not are_tags:
        check_words(row, name)
    found = values_of(row, name)
    values = check_list(record[name] if found is None else found, name, row.where)
    if are_tags:
        return tuple(values)  # `_name_tags` checks them
    return tuple(
        check_text(value, f"{name}, entry {place + 1},", row.where, may_be_empty=True)
        for place, value in enumerate(values)
    )


def check_words(row: Row, name: str) -> None:
    """Refuse a row of CSV that holds one word, as in tables with a word per row."""
    if named_format(row.path) == "csv" and values_of(row, name) is None:
        raise ValueError(
            f"{row.where}: the column {name!r} must hold a list of words, found {short(row.values[name])}. Write "
            "lists, as in JSON Lines, or write columns with a word per line and an empty line between texts (.conll)."
        )


def check_named(values: Iterable[Any], place: str, column: str) -> None:
    """Refuse tags that are numbers without names."""
    number = next((each for each in values if whole_number(each) is not None), None)
    if number is not None:
        raise ValueError(
            f"{place}: the tags ({column}) are numbers, such as {short(number)}, and neither the file nor a README.md "
            f"beside it has their names. Give {OPTION}, in the order of the numbers, such as {OPTION} O B-PER I-PER; "
            "or --scheme plain if the numbers are labels as they are."
        )
