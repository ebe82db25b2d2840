"""Official files: their text, what identifies their content, and checks of the JSON values that they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_NAMES = 8  # RACE has a file for each passage


def describe(files: Sequence[Path]) -> dict[str, Any]:
    """What a prepared folder remembers of its source, wherever the files lie.

    Returns:
        Number and bytes of the files, one SHA-256 over their contents, and the names of the first ones.
    """
    digest = hashlib.sha256()
    num_bytes = 0
    for path in files:
        content = path.read_bytes()
        num_bytes += len(content)
        digest.update(hashlib.sha256(content).digest())
    names = [path.name for path in files[:MOST_NAMES]]
    return {"files": len(files), "bytes": num_bytes, "sha256": digest.hexdigest(), "names": names}


def read_text(path: Path) -> str:
    """The content of a file, without the byte order mark that some editors write.

    Raises:
        ValueError: naming the file and the byte, if it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8. Save the file as UTF-8."
        ) from None


def check_list(value: Any, name: str, where: str) -> list[Any]:
    """The value, if it is a list.

    Raises:
        ValueError: beginning with `where`, and naming the key.
    """
    if not isinstance(value, list):
        raise ValueError(f"{where}: {name} must be a list, found {short(value)}.")
    return value


def check_text(value: Any, name: str, where: str, *, may_be_empty: bool = False) -> str:
    """The value, if it is a text that can be written as UTF-8.

    Raises:
        ValueError: beginning with `where`, and naming the key.
    """
    if not isinstance(value, str):
        raise ValueError(f"{where}: {name} must be a text, found {short(value)}.")
    if not value.strip() and not may_be_empty:
        raise ValueError(f"{where}: {name} is empty. Fill it in, or leave the entry out.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}: {name} holds half of a surrogate pair at character {error.start}, which is not a character. "
                "Write the whole character."
            ) from None
    return value


def check_id(value: Any, where: str) -> str:
    """An id: a text, or a whole number as some data sets have it."""
    return str(value) if type(value) is int else check_text(value, "id", where)


def short(value: Any) -> str:
    """A value as messages show it: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
