"""Decides from all rows of a TSV file if quotation marks enclose cells, as in CSV, or belong to the texts.

Two sorts of files have this name. In plain ones, as GLUE's official files, a quotation mark is an ordinary character.
pandas, R, Excel and Python's `csv` write the other sort, CSV with tabs: a cell with a quotation mark, a tab or a line
end is enclosed in quotation marks, and those inside are doubled. Such a program leaves no quotation mark in a cell that
is not enclosed, and encloses no cell without need but all texts, the names of the columns among them.

    what the rows show                                                        the file is
    no cell begins with a quotation mark                                      plain; both readings agree
    the names of the columns are enclosed                                     quoted
    enclosed cells with doubled marks, tabs or line ends                      quoted
    other quotation marks                                                     plain
    both; or only enclosed cells without need, of a whole column, or as
    Excel encloses them, which does so with each cell that has a comma        unclear, and refused

In a file that can be read twice, all rows decide; in a pipe, the first row with a cell that begins with a quotation
mark, and each later row must agree.

Example: the cell '"She said ""yes""."' is quoted; '"Yes," she said.' is plain; '"Yes."' alone could be either.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_INSIDE = re.compile(r'[^"]*(?:""[^"]*)*')
_LONGEST_CELL = 1 << 24  # characters; more come from a quotation mark that is not closed
_TO_CSV = (
    "python -c \"import csv, sys; csv.writer(sys.stdout).writerows(line.rstrip('\\n').split('\\t') for line in "
    'sys.stdin)" < FILE.tsv > FILE.csv'
)


class Cell(NamedTuple):
    """A cell; `is_enclosed` in quotation marks."""

    text: str
    is_enclosed: bool = False

    @property
    def is_stray(self) -> bool:
        """True if it has quotation marks that enclose nothing."""
        return not self.is_enclosed and '"' in self.text


class Quotes:
    """Evidence in the rows of a TSV file. Each field is the number of the first line that shows it, 0 for none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._of_names = 0  # the names of the columns are enclosed
        self._needed = 0  # a cell is enclosed as it has to be
        self._stray = 0  # a quotation mark that encloses nothing
        self._whole = 0  # an enclosed cell without need
        self._spread = 0  # an enclosed cell of several lines, each of which would be a row of a plain file
        self._comma = 0  # a comma in a cell that is not enclosed
        self._whole_without_comma = 0  # a cell that Excel would not enclose either
        self._begins = 0  # a cell begins with a quotation mark
        self._width = 0
        self._enclosed: set[int] = set()  # columns whose cells are all enclosed

    def note(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The lines of each row, after what they show is noted."""
        source = _Lines(lines)
        for line in source:
            number = source.number
            if '"' in line or not self._width:
                yield self._note_row(line, source, number)
                continue
            if not line.isspace():
                self._enclosed.clear()
                self._comma = self._comma or ("," in line and number)
            yield [line]

    def are_enclosing(self) -> bool | None:
        """True if quotation marks enclose cells; None if no cell begins with one.

        Raises:
            ValueError: if the rows contradict each other, or leave it open.
        """
        if not self._begins:
            return None
        quoted = self._of_names or self._needed
        if quoted and self._stray:
            raise ValueError(
                f"{self._name}: quotation marks enclose cells in line {quoted}, as in CSV, and are ordinary "
                f"characters in line {self._stray}. {self._remedy(f'correct line {self._stray}, or ')}"
            )
        if quoted or self._stray:
            return bool(quoted)
        as_excel = not self._comma and not self._whole_without_comma
        if self._spread or (self._whole and (self._enclosed or as_excel)):
            raise ValueError(
                f"{self._name}, line {self._spread or self._whole}: the quotation marks around a cell may enclose it, "
                f"as in CSV, or belong to the text; no row shows which. {self._remedy()}"
            )
        return False

    @staticmethod
    def _remedy(first: str = "") -> str:
        return (
            f"If they enclose cells, {first}give --delimiter '\\t', which reads the table as CSV with tabs; if they "
            f"belong to the texts, make it a CSV file: `{_TO_CSV}`."
        )

    def _note_row(self, line: str, source: _Lines, number: int) -> list[str]:
        """Note what a row shows, and return its lines.

        Examples of a file with two columns, in the order of the branches below ("|" is a tab, "/" a line end):

            stray    5" pipe|x  or  "a" b|x     a mark that encloses nothing
            stray    "a|b"                      two cells as a plain line, but only one in quotation marks
            needed   "a|b"|c  or  "a ""b"" c"|x   a tab or doubled marks within, or any cell if the header is enclosed
            stray    "a|x/b"|y                  two plain rows of two cells, or a cell of two lines: taken as plain
            spread   "a/b"                      in a file with one column: two plain rows, or one cell of two lines
            whole    "a"|x                      enclosed without need, or marks that belong to the text
        """
        if line.isspace():
            return [line]
        self._begins = self._begins or (line.startswith('"') or '\t"' in line) * number
        # The row is read both ways: as cells in quotation marks, which may span lines, and as plain lines cut at tabs.
        cells, lines = _row_of(line, source)
        widths = {each.count("\t") + 1 for each in lines}
        enclosed = [place for place, cell in enumerate(cells) if cell.is_enclosed]
        if not self._width:
            self._of_names = number if enclosed else 0
            self._width = len(cells) if enclosed else widths.pop()
            self._enclosed = set(range(self._width))
            return lines
        self._enclosed &= set(enclosed)  # columns that every row so far has in quotation marks
        if any("," in cell.text for cell in cells if not cell.is_enclosed):
            self._comma = self._comma or number
        is_plain, is_quoted = widths == {self._width}, len(cells) == self._width
        is_stray = any(cell.is_stray for cell in cells)
        has_doubled = any('"' in cells[place].text for place in enclosed)
        # Each branch keeps the first row that is evidence for one reading; the caller weighs them at the end.
        if is_stray or (enclosed and is_plain and not is_quoted):
            self._stray = self._stray or number
        elif enclosed and is_quoted and (self._of_names or not is_plain or has_doubled):
            self._needed = self._needed or number
        elif len(lines) > 1 and is_plain and self._width > 1:
            self._stray = self._stray or number
        elif len(lines) > 1 and is_plain:
            self._spread = self._spread or number
        elif enclosed and is_plain:
            self._whole = self._whole or number
            if not all("," in cells[place].text for place in enclosed):
                self._whole_without_comma = self._whole_without_comma or number
        return lines


class _Lines:
    """Lines, which can be put back; `number` is the last line's number."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._again = iter(lines), deque[str]()
        self.number = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.number += 1
        return line

    def put_back(self, lines: list[str]) -> None:
        """Let these lines come again."""
        self._again.extendleft(reversed(lines))
        self.number -= len(lines)


def _row_of(line: str, source: _Lines) -> tuple[list[Cell], list[str]]:
    """The cells of a row read as quoted, and its lines; plain cells if the line cannot be read so."""
    cells: list[Cell] = []
    lines, place = [line], 0
    while True:
        if lines[-1].startswith('"', place):
            place, text = _end_of_cell(lines, place + 1, source)
            cells.append(Cell(text, is_enclosed=True))
        else:
            end = lines[-1].find("\t", place)
            end = len(lines[-1]) if end < 0 else end
            cells.append(Cell(lines[-1][place:end]))
            place = end
        after = lines[-1][place : place + 1] if place >= 0 else "no end"
        if not after or after in "\r\n":
            return cells, lines
        if after != "\t":  # after a quotation mark that would end the cell
            source.put_back(lines[1:])
            return [Cell(each) for each in line.split("\t")], [line]
        place += 1


def _end_of_cell(lines: list[str], place: int, source: _Lines) -> tuple[int, str]:
    """Where the cell ends whose inside begins at a place of the last line, and its text; adds the lines that it has."""
    inside: list[str] = []
    size = 0
    while True:
        match = _INSIDE.match(lines[-1], place)
        assert match is not None
        inside.append(match[0])
        size += len(match[0])
        if match.end() < len(lines[-1]):
            return match.end() + 1, "".join(inside)
        following = next(source, None) if size < _LONGEST_CELL else None
        if following is None:
            return -1, ""  # it has no end
        lines.append(following)
        place = 0
