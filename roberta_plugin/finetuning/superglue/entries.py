"""A file of JSON Lines -> its objects, each with its file and line, so that every message can name them.

Example: the line {"question": "is it on", "label": true} -> an `Entry` whose `text("question")` is "is it on" and whose
`label("label", (False, True))` is 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from roberta_plugin.finetuning.raw_files import check_list, check_text, short

LABELLED = ("train", "valid")
"""Splits that every task needs, and whose labels are public."""


class HasId(Protocol):
    """A row of any task."""

    @property
    def id(self) -> Any:
        """As prediction files name the row."""


Row = TypeVar("Row", bound=HasId)


class Entry:
    """A JSON object, and where it stands."""

    def __init__(self, content: Any, where: str) -> None:
        """Check that `content` is an object.

        Raises:
            ValueError: beginning with `where`, if it is not.
        """
        if not isinstance(content, dict):
            raise ValueError(f"{where}: expected a JSON object with named fields, found {short(content)}.")
        self.content: Mapping[str, Any] = content
        self.where = where

    def value(self, name: str) -> Any:
        """The value of a field.

        Raises:
            ValueError: if there is no such field.
        """
        if name not in self.content:
            found = ", ".join(self.content) or "none"
            raise ValueError(f"{self.where}: the field {name!r} is missing; found {found}. Add it.")
        return self.content[name]

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        """A text as it stands in the file.

        Raises:
            ValueError: if the field is missing, empty or not a text.
        """
        return check_text(self.value(name), name, self.where, may_be_empty=may_be_empty)

    def number(self, name: str) -> int:
        """A whole number from 0 on.

        Raises:
            ValueError: if the field is missing or holds anything else.
        """
        value = self.value(name)
        if type(value) is not int or value < 0:
            raise ValueError(f"{self.where}: {name} must be a whole number from 0 on, found {short(value)}.")
        return value

    def label(self, name: str, values: Sequence[Any]) -> int:
        """The index of the field's value among `values`, compared with its type: 1 is not true.

        Raises:
            ValueError: if the field is missing or the value is not among them.
        """
        value = self.value(name)
        for index, known in enumerate(values):
            if type(value) is type(known) and value == known:
                return index
        known_values = ", ".join(json.dumps(known) for known in values)
        raise ValueError(f"{self.where}: {name} is {short(value)}, and must be one of {known_values}. Correct it.")

    def entry(self, name: str) -> Entry:
        """An object within this one.

        Raises:
            ValueError: if the field is missing or holds no object.
        """
        return Entry(self.value(name), f"{self.where}, {name}")

    def entries(self, name: str) -> list[Entry]:
        """A list of objects within this one.

        Raises:
            ValueError: if the field is missing or holds no list of objects, or an empty one.
        """
        values = check_list(self.value(name), name, self.where)
        if not values:
            raise ValueError(f"{self.where}: {name} is empty. Fill it in, or leave the entry out.")
        return [Entry(value, f"{self.where}, {name} {number}") for number, value in enumerate(values, start=1)]


def read_entries(path: Path) -> Iterator[Entry]:
    """The objects of a file, one per line; empty lines do not count.

    Raises:
        ValueError: naming the file and line of what is not a JSON object in UTF-8, or the file if it holds none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        bad_line = path.read_bytes().count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {bad_line}: the bytes are not UTF-8. Save the file as UTF-8.") from None
    is_empty = True
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines(): U+2028 may stand inside a string
        if not line.strip():
            continue
        where, is_empty = f"{path}, line {number}", False
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where} is not valid JSON ({error}). Fetch the file again, or correct it.") from None
        yield Entry(content, where)
    if is_empty:
        raise ValueError(f"{path} is empty. Fetch it again.")


def find_files(task: str, raw: Path, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The file of each split that `raw`, or its folder of the task's name, has.

    Args:
        task: its name in the official archive.
        raw: folder that the user gave.
        files: split -> names of its file, of which the first that exists is taken.

    Raises:
        FileNotFoundError: if the training or the development set is missing.
    """
    folder = raw / task if (raw / task).is_dir() else raw
    found = {}
    for split, names in files.items():
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is not None:
            found[split] = path
        elif split in LABELLED:
            raise FileNotFoundError(
                f"{folder} holds no {' or '.join(names)}: {task} needs the official files, unchanged; give the "
                f"folder that holds them, or the one that holds {task}/."
            )
    return found


def with_unique_ids(rows: Iterable[tuple[Entry, Row]]) -> Iterator[Row]:
    """The rows that were made of entries.

    Raises:
        ValueError: naming both places, if two rows have the same id.
    """
    seen: dict[str, str] = {}
    for entry, row in rows:
        key = str(row.id)
        if key in seen:
            raise ValueError(
                f"{entry.where}: the id {key} occurs in {seen[key]} already. Ids must be unique; correct or remove one "
                "of the two."
            )
        seen[key] = entry.where
        yield row
