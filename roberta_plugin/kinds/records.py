"""The columns of a row, which may have one of several names. A record that `roberta predict` is asked is a row, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roberta_plugin.kinds.cells import values_in
from roberta_plugin.tables import Row, check_list, check_text


def column_of(row: Row, names: Sequence[str], *, option: str) -> str:
    """The first of these columns that a row has."""
    found = next((name for name in names if name in row.values), names[0])
    row.value(found, option=option)
    return found


def text_of(row: Row, names: Sequence[str], *, option: str, keeps_space: bool = False) -> str:
    """The text of the first of these columns that a row has, without white space at its ends unless it is kept."""
    text = row.text(column_of(row, names, option=option), option=option)
    return text if keeps_space else text.strip()


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
