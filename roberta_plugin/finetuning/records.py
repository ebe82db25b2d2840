"""The columns of a row, which may have one of several names, and the only place where cells are parsed.

A record for `roberta predict` is read as a row, too. A cell is read as a list, a number, or yes or no.

JSON Lines and Parquet have lists and numbers. In CSV and TSV these are texts; a list is written in JSON. Lists printed
by Python and numpy, such as "['a', 'b']" and "['a' 'b']", are refused, because numpy leaves out commas and entries.

White space of a text, as models read it in training, `roberta predict`, the hub and exported tokenizers (`as_read`):

    kept       all of it
    stripped   none at the ends; white space is defined by Unicode (`data/white_space.py`)
    one_line   none at the ends, and one space for any other run of white space
    spaces     all of it, with a space for each line end, because the text of pretraining has no line ends
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from roberta_plugin.data.white_space import one_line as one_line
from roberta_plugin.data.white_space import strip
from roberta_plugin.tables import Row, check_list, check_text, short

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_SET = re.compile(r"(?:frozen)?set\(.*\)", re.S)
_NUMPY = re.compile(r"\b(?:(?:np|numpy)\.\w|array\()")
_ENTRY = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|True|False)"
_VECTOR = re.compile(rf"\[[\s\[]*{_ENTRY}(?:[\s\[\]]+(?:{_ENTRY}|\.\.\.))*[\s\]]*\]")  # [1 0], as numpy prints it
_JOINED = re.compile(r"['\"]\s+['\"]")  # ['a' 'b'] likewise, which is ['ab'] in Python
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_FLAGS = re.compile(r"[01](?:\.0*)?(?:[\s,;|]+[01](?:\.0*)?)+")


def values_in(value: object, *, separator: str = "") -> list[Any] | None:
    """The values of a cell that may have several: a list, a text with a list in JSON, or a text that the separator
    divides; None for anything else.

    Raises:
        ValueError: if a text in brackets is not a list in JSON, so that brackets or quotation marks would become part
            of the values; or if the separator cuts it within brackets.
    """
    value = unwrapped(value)
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return None
    parsed = parse_cell(value)
    if isinstance(parsed, list):
        return parsed
    text = (parsed if isinstance(parsed, str) else value).strip()
    if isinstance(parsed, dict) or text[:1] + text[-1:] in ("[]", "{}"):
        plain = f', or without brackets, separated by "{separator}"' if separator else ""
        raise ValueError(f'{short(text)} is not a list in JSON. Write ["one", "two"]{plain}.')
    if not separator:
        return None
    if _FLAGS.fullmatch(text):
        return re.split(r"[\s,;|]+", text)
    parts = [part.strip() for part in text.split(separator) if part.strip()]
    if _is_nested(text) and not all(map(_is_nested, parts)):  # tensor([0, 1]), c("a", "b"), or a value with a comma
        raise ValueError(
            f'"{separator}" cuts {short(text)} within brackets. Write a list in JSON: ["one", "two (a{separator} b)"].'
        )
    return parts


def unwrapped(value: Any, where: str = "") -> Any:
    """The list in {"choices": [...]}, as Label Studio writes labels, also from a text; other values unchanged."""
    parsed = parse_cell(value, where) if isinstance(value, str) and value.lstrip().startswith("{") else value
    is_wrapped = isinstance(parsed, dict) and parsed.keys() == {"choices"} and isinstance(parsed["choices"], list)
    return parsed["choices"] if is_wrapped else value


def alone(value: object, where: str) -> Any:
    """The value in a list of one, also from a text with such a list in JSON; other values unchanged.

    Example: ["a"], '["a"]' and {"choices": ["a"]} -> "a".
    """
    inner = unwrapped(value, where)
    parsed = parse_cell(inner, where) if isinstance(inner, str) and inner.lstrip().startswith("[") else inner
    is_alone = isinstance(parsed, list) and len(parsed) == 1 and not isinstance(parsed[0], list | dict)
    return parsed[0] if is_alone else value


def _is_nested(text: str) -> bool:
    """True if the brackets of a text are balanced."""
    expected: list[str] = []
    for character in text:
        if character in _BRACKETS:
            expected.append(_BRACKETS[character])
        elif character in _BRACKETS.values() and (not expected or expected.pop() != character):
            return False
    return not expected


def parse_json(text: str) -> Any:
    """The list, object or quoted text in a text of JSON; None for plain text."""
    text = text.strip()
    if text[:1] + text[-1:] not in ("[]", "{}", '""'):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_cell(text: str, where: str = "") -> Any:
    """`parse_json` of a cell that may have a list or object.

    Raises:
        ValueError: if the cell has a list or object as Python or numpy prints it; `where` is the place of the cell.
    """
    parsed = parse_json(text)
    text = text.strip()
    is_call = _SET.fullmatch(text) or (_NUMPY.match(text) and text.endswith(")"))
    if parsed is not None or not (is_call or text[:1] + text[-1:] in ("[]", "()", "{}")):
        return parsed
    is_python = is_call or _is_python(text)
    if _NUMPY.search(text) or _VECTOR.fullmatch(text) or (is_python and _JOINED.search(text)):
        what = "printed by numpy, which leaves out commas and entries: write the data again"
    elif is_python:
        what = "in the notation of Python: parse it with ast.literal_eval, and write the data again"
    else:
        return None
    raise ValueError(
        f"{where}{': ' if where else ''}{short(text)} is {what} with lists, as JSON Lines (in pandas .to_json(FILE, "
        'orient="records", lines=True), in datasets .to_json(FILE)) or as Parquet.'
    )


def _is_python(text: str) -> bool:
    """True if a text is a list, tuple, set or dictionary as Python prints it; no code in the text is run."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return isinstance(value, list | tuple | set | dict) and ... not in value  # [...] is a text


def texts_in(value: Any, where: str) -> list[Any] | None:
    """The texts of a list, or of a text with a list of texts in JSON; None for one text, even if it is in brackets."""
    parsed = parse_cell(value, where) if isinstance(value, str) else value
    is_list = isinstance(parsed, list) and (parsed is value or all(isinstance(each, str) for each in parsed))
    return parsed if is_list else None


def number_in(value: Any, *, decimal: str = ".") -> float:
    """The number in a cell; NaN if it has none, or one that is not finite.

    A text is a number if JSON or C would write it like that, as in 1.5, -2 or 1e-3. 1,5 and 1_000 are not, because
    programs differ in reading them. If `decimal` is a comma, numbers are written with it in place of the point.
    """
    if decimal != "." and isinstance(value, str):
        value = "" if "." in value else value.replace(decimal, ".")
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value.strip())):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def number_remedy(value: object, decimal: str) -> str:
    """How to write a cell that should be a number."""
    if decimal == "." and not math.isnan(number_in(value, decimal=",")):
        return "write it as 1234.5 or 1e-3, or give --decimal ',' if all numbers are written with a comma"
    return f"write it as 1234{decimal}5 or 1e-3"


def flag_in(value: object) -> bool | None:
    """True for true, 1, 1.0, "1" and "True", False for the corresponding values; None for anything else."""
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    number = float(value) if isinstance(value, bool) else number_in(value)
    return bool(number) if number in (0.0, 1.0) else None


def flags_in(values: Sequence[Any]) -> list[bool] | None:
    """Two or more values that are all yes or no, as in a vector of 0 and 1; None for anything else."""
    flags = [flag_in(each) for each in values]
    valid = [flag for flag in flags if flag is not None]
    return valid if len(valid) == len(flags) > 1 else None


WhiteSpace = Literal["kept", "stripped", "one_line", "spaces"]
_LINE_ENDS = str.maketrans("\r\n", "  ")


def as_read(text: str, white_space: WhiteSpace) -> str:
    """The text as a model reads it, by one of the rules in the docstring of the file."""
    if white_space == "spaces":
        return text.translate(_LINE_ENDS)
    if white_space == "one_line":
        return one_line(text)
    return strip(text) if white_space == "stripped" else text


class NotedValues(dict[str, Any]):
    """The values of a row; `read` gets the names of the columns whose values were used."""

    def __init__(self, values: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(values)
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Any:
        """The value, or the default without one."""
        self._read.update({name} & self.keys())
        return super().get(name, default)


def column_of(row: Row, names: Sequence[str], *, option: str) -> str:
    """The first of these columns that a row has."""
    column = next((name for name in names if name in row.values), names[0])
    row.value(column, option=option)
    return column


def text_of(row: Row, names: Sequence[str], *, option: str, white_space: WhiteSpace = "stripped") -> str:
    """The text of the first of these columns that a row has, as a model reads it."""
    return as_read(row.text(column_of(row, names, option=option), option=option), white_space)


def values_of(row: Row, name: str, *, separator: str = "") -> list[Any] | None:
    """`values_in` the cell of a column; the error for a text that cannot be read names its place."""
    try:
        return values_in(row.values[name], separator=separator)
    except ValueError as error:
        raise ValueError(f"{row.where}, the column {name!r}: {error}") from None


def texts_of(row: Row, name: str, *, what: str, may_be_empty: bool = False) -> list[str]:
    """The list of texts in a column, also from a text with a list in JSON."""
    values = values_of(row, name)
    values = check_list(row.values[name] if values is None else values, f"the column {name!r}", row.where)
    return [
        check_text(value, f"{what} {number} of the column {name!r}", row.where, may_be_empty=may_be_empty)
        for number, value in enumerate(values, start=1)
    ]
