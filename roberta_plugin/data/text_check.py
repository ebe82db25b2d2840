"""Finds content of a text for pretraining that a model should not learn, or that makes its scores look too good.

    files --check_text--> TextCheck     how much text, and its faults, each with the first lines that have it
    train and held-out lines --find_overlap--> Overlap     what of the held-out text is also in the training text

Text of more than `MOST_BYTES` is sampled: evenly spread parts of plain files, the beginnings of others. Used by
`roberta check`, and by `roberta pretrain` before it makes a tokenizer and a data-bin.

Shapes: n characters of a text.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.text_inputs import LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.data.text_inputs_lines import BadLineError
from roberta_plugin.data.text_inputs_tables import CELL_END

MOST_BYTES = 100 * 2**20
PASSAGE = 50  # characters
_PART_BYTES = 2**20
_LONG_LINE = 20_000  # characters
_MOST_PLACES = 3
_SHOWN, _BEFORE = 60, 20  # characters of a line, and before a fault
_EVERY_BLOCK = 8  # letters of every eighth block are counted by script
_MULTIPLIERS = np.random.default_rng(20191107).integers(1, 2**63, PASSAGE // 2, dtype=np.uint64) * 2 + 1
_BITS = 24  # of the table by which most passages are known to be new


class Place(NamedTuple):
    """A line of a file, or a row of a table."""

    name: str
    line: int
    """0 if it is not known, in a sample."""
    text: str
    unit: str = "line"

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        return f"{self.name}, {f'{self.unit} {self.line:,}' if self.line else 'in the sample'}: {text!r}"


@dataclass
class Fault:
    """A kind of fault in a text."""

    count: int = 0
    """Lines that have it."""
    places: list[Place] = field(default_factory=list)
    """The first ones, or the worst."""

    def add(self, place: Place) -> None:
        """Count a line, and keep the first ones."""
        self.count += 1
        if len(self.places) < _MOST_PLACES:
            self.places.append(place)


REMEDIES = {
    "are not UTF-8, or are not text": "convert the file with `iconv -f LATIN1 -t UTF-8`, or from whatever its encoding "
    "is, or skip these lines with --skip-bad-lines",
    "repeat an earlier line": "duplicates are memorized, and leak into held-out text: remove them "
    "(`awk '!NF || !seen[$0]++'` keeps the first of each)",
    "are not in the normal form NFC": "a word in two forms is tokenized in two ways: normalize all text, with "
    "`uconv -x nfc` or Python's unicodedata",
    "have HTML entities": "decode them, as Python's html.unescape does",
    "have HTML or XML tags": "extract the text from the markup",
    "have U+FFFD, the mark of a lost character": "decode the original again in its own encoding",
    "have letters in a wrong encoding": "UTF-8 was read as Latin-1 or Windows-1252: repair it, as ftfy does",
    "have control characters": "delete them, as `tr -d '\\000-\\010\\013\\014\\016-\\037'` does",
    "have U+FEFF, a byte order mark": "delete it: it is left over where files were joined",
    f"are longer than {_LONG_LINE:,} characters": "such lines are seldom sentences or paragraphs: look at them",
}
(
    _BAD,
    _REPEATED,
    _NOT_NFC,
    _ENTITIES,
    _TAGS,
    _LOST,
    _MOJIBAKE,
    _CONTROL,
    _BOM,
    _LONG,
) = REMEDIES
_CP1252 = "".join(bytes([number]).decode("cp1252", "ignore") for number in range(0x80, 0xA0))
_PATTERNS: dict[str, re.Pattern[str]] = {
    _ENTITIES: re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"),
    _TAGS: re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]{0,300})?/?>"),
    _LOST: re.compile("\ufffd"),
    _MOJIBAKE: re.compile(f"[\u00c2-\u00f4][\u0080-\u00bf{_CP1252}]+"),
    _CONTROL: re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    _BOM: re.compile("\ufeff"),
}


@dataclass
class TextCheck:
    """How much text there is, and what is wrong with it."""

    bytes: int = 0
    lines: int = 0
    """Without blank ones."""
    blank: int = 0
    documents: int = 0
    words: int = 0
    characters: int = 0
    longest: Place | None = None
    longest_length: int = 0
    is_sample: bool = False
    faults: dict[str, Fault] = field(default_factory=dict)
    scripts: Counter[str] = field(default_factory=Counter)
    """Letters of a part of the text by script, which is the first word of a character's Unicode name."""

    def add(self, name: str, place: Place) -> None:
        """Count a line with a fault."""
        self.faults.setdefault(name, Fault()).add(place)

    def describe(self) -> list[str]:
        """The amounts, in lines."""
        sample = f", a sample of {self.bytes / 2**20:,.0f} MB" if self.is_sample else ""
        letters = sum(self.scripts.values())
        scripts = ", ".join(
            f"{name.capitalize()} {percent(count / letters)}" for name, count in self.scripts.most_common(4) if count
        )
        lines = [
            f"{self.lines:,} lines in {self.documents:,} documents, {self.words:,} words, "
            f"{self.characters:,} characters, {self.bytes:,} bytes{sample}"
        ]
        if self.longest is not None:
            lines.append(f"longest line: {self.longest_length:,} characters, {self.longest}")
        return [*lines, f"letters: {scripts}"] if letters else lines

    def warnings(self) -> list[str]:
        """Each fault with its count, the first lines that have it, and what to do."""
        total = self.lines + (self.faults[_BAD].count if _BAD in self.faults else 0)
        return [
            f"{fault.count:,} of {total:,} lines ({percent(fault.count / total)}) "
            f"{name}: {REMEDIES[name]}" + "".join(f"\n    {place}" for place in fault.places)
            for name, fault in ((name, self.faults[name]) for name in REMEDIES if name in self.faults)
        ]


def percent(share: float) -> str:
    """A share in per cent; small ones are not rounded to nothing."""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def check_text(
    sources: Sequence[TextInput], rules: LineRules, *, on_read: Callable[[int], None] = lambda num_bytes: None
) -> TextCheck:
    """Look at all text, or at a sample of a large one; `on_read` is called with numbers of bytes that were read."""
    check, repetitions = TextCheck(), _Repetitions()
    in_document = False
    for number, (source, numbers, lines) in enumerate(_read(sources, rules, check, on_read)):
        text = "\n".join(lines)
        check.characters += len(text)
        check.words += len(text.split())
        if number % _EVERY_BLOCK == 0:
            _count_scripts(text, check.scripts)
        suspects = _suspects(text)
        for line_number, line in zip(numbers, lines, strict=True):
            if not line:
                check.blank += 1
                in_document = False
                continue
            check.lines += 1
            check.documents += not in_document
            in_document = True
            length = len(line)
            if length > check.longest_length:
                check.longest, check.longest_length = _place(source, line_number, line), length
            if length > _LONG_LINE:
                check.add(_LONG, _place(source, line_number, line))
            repetitions.note(source, line_number, line)
            for name, find_fault in suspects:
                if (at := find_fault(line)) is not None:
                    check.add(name, _place(source, line_number, line[max(0, at - _BEFORE) :]))
    if fault := repetitions.fault():
        check.faults[_REPEATED] = fault
    return check


class _Repetitions:
    """Counts lines that repeat an earlier one, by their hashes, and keeps the place of each one's first repetition."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._counts: Counter[int] = Counter()
        self._places: dict[int, Place] = {}

    def note(self, source: TextInput, number: int, line: str) -> None:
        """Compare a line with those before it."""
        key = hash(line)
        if key not in self._seen:
            self._seen.add(key)
            return
        self._counts[key] += 1
        if key not in self._places:
            self._places[key] = _place(source, number, line)

    def fault(self) -> Fault | None:
        """The number of repetitions, and the lines that have the most; None if there are none."""
        worst = heapq.nlargest(_MOST_PLACES, self._counts.items(), key=lambda item: item[1])
        return Fault(sum(self._counts.values()), [self._places[key] for key, _ in worst]) if worst else None


def _place(source: TextInput, number: int, text: str) -> Place:
    return Place(source.name, number, text, "row" if source.is_table else "line")


def _read(
    sources: Sequence[TextInput], rules: LineRules, check: TextCheck, on_read: Callable[[int], None]
) -> Iterator[tuple[TextInput, Sequence[int], list[str]]]:
    """The lines of blocks, and the number of each in its file, or its row's number; 0 in a part of a sample.

    Lines that are not text are a fault, and left out.
    """
    total = sum(source.size for source in sources)
    check.is_sample = total > MOST_BYTES
    for source in sources:
        for start, end in _parts(source, share=min(1.0, MOST_BYTES / max(1, total))):
            first_line, read, is_whole = 1, 0, start is None
            span = {} if start is None else {"start": start, "end": end}
            for block in read_blocks(source, **span):
                numbers: list[int] = []
                lines: list[str] = []
                for number, part in _number_lines(block, source, first_line):
                    found = _lines(part, source, number if is_whole else 0, rules, check)
                    is_text = part is block
                    numbers += range(number, number + len(found)) if is_text else [number] * len(found)
                    lines += found
                yield source, numbers if is_whole else [0] * len(lines), lines
                first_line += count_lines(block, source)
                check.bytes += len(block)
                read += len(block)
                on_read(len(block))
                if check.is_sample and start is None and read >= source.size * MOST_BYTES / total:
                    break


def _number_lines(block: bytes, source: TextInput, first_line: int) -> Iterator[tuple[int, bytes]]:
    """The block with the number of its first line; for tables and JSON Lines, each row with its own number."""
    if source.is_table:
        rows = [row + CELL_END for row in block.split(CELL_END)[:-1]]
    elif source.form == "jsonl":
        rows = block.splitlines(keepends=True)
    else:
        rows = [block]
    return enumerate(rows, start=first_line)


def _lines(block: bytes, source: TextInput, first_line: int, rules: LineRules, check: TextCheck) -> list[str]:
    """The lines of a block; those that are not text are a fault."""
    try:
        return lines_of(block, source=source, first_line=first_line, rules=_strict(rules))[0]
    except BadLineError as error:
        lines, count = lines_of(block, source=source, first_line=first_line, rules=_tolerant(rules))
        fault = check.faults.setdefault(_BAD, Fault())
        fault.count += count
        if len(fault.places) < _MOST_PLACES:
            fault.places.append(_place(source, error.line if first_line else 0, error.reason))
        return lines


def _strict(rules: LineRules) -> LineRules:
    return replace(rules, skip_bad_lines=False)


def _tolerant(rules: LineRules) -> LineRules:
    return replace(rules, skip_bad_lines=True)


def _parts(source: TextInput, *, share: float) -> list[tuple[int | None, int | None]]:
    """Byte ranges of a plain file, evenly spread, with `share` of it; else the whole."""
    if share == 1 or source.is_sequential or source.is_columnar:
        return [(None, None)]
    num_parts = max(1, round(source.size * share / _PART_BYTES))
    begins = np.linspace(0, max(0, source.size - _PART_BYTES), num_parts).astype(np.int64)
    return [(int(begin), int(begin) + _PART_BYTES) for begin in begins]


def _suspects(text: str) -> list[tuple[str, Callable[[str], int | None]]]:
    """The faults that some line of a block may have, each with the function that finds where it begins in a line."""
    found: list[tuple[str, Callable[[str], int | None]]] = []
    if not text.isascii():
        if not unicodedata.is_normalized("NFC", text):
            found.append((_NOT_NFC, lambda line: None if unicodedata.is_normalized("NFC", line) else 0))
        if _PATTERNS[_MOJIBAKE].search(text):
            found.append((_MOJIBAKE, _find_mojibake))
    for name in (_ENTITIES, _TAGS, _LOST, _CONTROL, _BOM):
        if _PATTERNS[name].search(text):
            found.append((name, partial(_find, _PATTERNS[name])))
    return found


def _find(pattern: re.Pattern[str], line: str) -> int | None:
    match = pattern.search(line)
    return None if match is None else match.start()


def _find_mojibake(line: str) -> int | None:
    """Where letters of the line are UTF-8 that was read as Windows-1252 or Latin-1."""
    for match in _PATTERNS[_MOJIBAKE].finditer(line):
        for encoding in ("cp1252", "latin-1"):
            try:
                match.group().encode(encoding).decode("utf-8")
            except UnicodeError:
                continue
            return match.start()
    return None


def _count_scripts(text: str, scripts: Counter[str]) -> None:
    for character, count in Counter(text).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "UNKNOWN").split()[0].split("-")[0]] += count


@dataclass(frozen=True)
class Overlap:
    """The parts of the held-out text that are also in the training text."""

    num_lines: int
    num_seen: int
    """Held-out lines that are lines of the training text."""
    num_passages: int
    num_passages_seen: int
    """Passages of 50 characters, one after the other, that occur somewhere in the training text."""
    examples: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The larger of the two shares."""
        return max(self.num_seen / max(1, self.num_lines), self.num_passages_seen / max(1, self.num_passages))

    def describe(self) -> str:
        """Both shares, and some lines that are in both texts."""
        passages = f", as are {self.num_passages_seen:,} of {self.num_passages:,} passages of {PASSAGE} characters"
        text = (
            f"{self.num_seen:,} of {self.num_lines:,} held-out lines "
            f"({percent(self.num_seen / max(1, self.num_lines))}) are also in the training text"
            f"{passages if self.num_passages else ''}"
        )
        return text + "".join(f"\n    {line[:_SHOWN]!r}" for line in self.examples)


def find_overlap(held_out: Iterable[str], train: Iterable[str]) -> Overlap:
    """Compare lines, and passages of 50 characters, of held-out lines with the training text, line by line."""
    held = [line for line in held_out if line]
    by_line = {hash(line): 0 for line in held}
    passages = np.unique(np.concatenate([_hashes(line)[::PASSAGE] for line in held] or [np.empty(0, dtype=np.uint64)]))
    table = np.zeros(2**_BITS, dtype=np.bool_)
    table[passages >> np.uint64(64 - _BITS)] = True
    seen = np.zeros(len(passages), dtype=np.bool_)
    for text in _join_lines(train, by_line):
        hashes = _hashes(text)
        hashes = hashes[table[hashes >> np.uint64(64 - _BITS)]]
        if len(hashes) and len(passages):
            at = np.minimum(np.searchsorted(passages, hashes), len(passages) - 1)
            seen[at[passages[at] == hashes]] = True
    of_held = np.concatenate([_hashes(line)[::PASSAGE] for line in held] or [np.empty(0, dtype=np.uint64)])
    num_passages_seen = int(seen[np.searchsorted(passages, of_held)].sum()) if len(of_held) else 0
    in_both = [line for line in held if by_line[hash(line)]]
    longest = tuple(dict.fromkeys(heapq.nlargest(_MOST_PLACES, in_both, key=len)))
    return Overlap(len(held), len(in_both), len(of_held), num_passages_seen, longest)


def _join_lines(train: Iterable[str], by_line: dict[int, int]) -> Iterator[str]:
    """The lines in texts of about a million characters, noting the lengths of `by_line`; no passage crosses a line."""
    lines: list[str] = []
    size = 0
    for line in train:
        if (key := hash(line)) in by_line:
            by_line[key] += 1
        if len(line) >= PASSAGE:
            lines.append(line)
            size += len(line)
            if size > 2**20:
                yield "\n".join(lines)
                lines, size = [], 0
    if lines:
        yield "\n".join(lines)


def _hashes(text: str) -> NDArray[np.uint64]:
    """A hash of each passage of 50 characters (n - 49,); the passages overlap."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)  # (n,)
    if len(codes) < PASSAGE:
        return np.empty(0, dtype=np.uint64)
    pairs = codes[:-1] | (codes[1:] << np.uint64(32))
    length = len(codes) - PASSAGE + 1
    sums = np.zeros(length, dtype=np.uint64)
    for number, multiplier in enumerate(_MULTIPLIERS):
        sums += pairs[2 * number : 2 * number + length] * multiplier
    sums ^= sums >> np.uint64(29)
    sums *= np.uint64(0xBF58476D1CE4E5B9)
    return sums ^ (sums >> np.uint64(32))
