"""The columns of a row, which may have one of several names. A record that `roberta predict` is asked is a row, too.

What a model reads of a text's white space, in training, `roberta predict`, the hub and exported tokenizers (`as_read`):

    kept       all of it
    stripped   none at the ends
    one_line   likewise, and of each run of it one space
    spaces     all of it, with spaces for line ends, of which the text of pretraining has none
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from roberta_plugin.finetuning.cells import values_in
from roberta_plugin.tables import Row, check_list, check_text

WhiteSpace = Literal["kept", "stripped", "one_line", "spaces"]
_LINE_ENDS = str.maketrans("\r\n", "  ")


def as_read(text: str, white_space: WhiteSpace) -> str:
    """The text as a model reads it; see the head of this file."""
    if white_space == "spaces":
        return text.translate(_LINE_ENDS)
    if white_space == "one_line":
        return one_line(text)
    return text.strip() if white_space == "stripped" else text


def one_line(text: str) -> str:
    """The text with every run of white space replaced by one space.

    Example: " a\\n\\tb " -> "a b".
    """
    return " ".join(text.split())


def column_of(row: Row, names: Sequence[str], *, option: str) -> str:
    """The first of these columns that a row has."""
    found = next((name for name in names if name in row.values), names[0])
    row.value(found, option=option)
    return found


def text_of(row: Row, names: Sequence[str], *, option: str, white_space: WhiteSpace = "stripped") -> str:
    """The text of the first of these columns that a row has, as a model reads it."""
    return as_read(row.text(column_of(row, names, option=option), option=option), white_space)


def values_of(row: Row, name: str, *, separator: str = "") -> list[Any] | None:
    """`values_in` the cell of a column; a text that cannot be read is named with its place."""
    try:
        return values_in(row.values[name], separator=separator)
    except ValueError as error:
        raise ValueError(f"{row.where}, the column {name!r}: {error}") from None


def texts_of(row: Row, name: str, *, what: str, may_be_empty: bool = False) -> list[str]:
    """The list of texts of a column, also as a text in the notation of a list."""
    values = values_of(row, name)
    values = check_list(row.values[name] if values is None else values, f"the column {name!r}", row.where)
    return [
        check_text(value, f"{what} {number} of the column {name!r}", row.where, may_be_empty=may_be_empty)
        for number, value in enumerate(values, start=1)
    ]
