"""Fields of files that other programs write: known, or read with some values only.

The meaning of a field must not get lost silently. So each file has a table, and `check_fields` looks at all that a
file holds: a value that would make another model is refused by name; one that changes what another program does around
the model, and a field that no table knows, are named in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Field(NamedTuple):
    """What happens to a field."""

    allowed: tuple[Any, ...] | None = None
    """The only values that are read; None: any."""
    note: str = ""
    """What is lost if the value is another; empty: another value makes another model, and is refused."""


USED = Field()
FLAG = Field((True, False))
"""A field that is true or false; texts such as "false", which are true to many a program, are refused."""
Table = Mapping[str, Field]


def known(names: str) -> dict[str, Field]:
    """Fields that are used whatever they say, or that change no answer, by their names with spaces between."""
    return dict.fromkeys(names.split(), USED)


def only(*values: Any) -> Field:
    """A field that makes another model, unless it has one of these values."""
    return Field(values)


def noted(note: str, *values: Any) -> Field:
    """A field that other programs follow and this one does not, unless it has one of these values."""
    return Field(values, note)


def check_fields(content: Mapping[str, Any], table: Table, where: object, *, remedy: str) -> list[str]:
    """Notes for the user on the fields of an object in the file `where` that are not followed, in sentences.

    A value that would make another model is refused, with the sentence `remedy`.

    Raises:
        ValueError: for a value that would make another model.
    """
    notes, unknown = [], []
    for name, value in content.items():
        value = value["content"] if isinstance(value, dict) and "content" in value else value  # an added token
        field = table.get(name)
        if field is None:
            unknown += [f"{name} ({value!r:.40})"] if value else []
        elif field.allowed is not None and not any(_is_same(value, one) for one in field.allowed):
            if not field.note:
                listed = " or ".join(repr(one) for one in field.allowed if one is not None)
                read = f"only {listed} is" if listed else "no value is"
                raise ValueError(f"{where}: {name} is {value!r:.80}, and {read} read here. {remedy}".rstrip())
            notes.append(f"{where}: {name} is {value!r:.80}, which is not followed: {field.note}.")
    if unknown:
        notes.append(f"{where} has fields that are not read here: {', '.join(unknown)}.")
    return notes


def _is_same(value: object, other: object) -> bool:
    """True if two values of JSON are equal; true is not 1."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
