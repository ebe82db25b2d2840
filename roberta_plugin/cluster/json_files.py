"""JSON files that a command has written and reads again: what is no such file is named, with a remedy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_json(path: Path, *, keys: Iterable[str], remedy: str) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no such file.

    Args:
        path: the file.
        keys: what the object must have.
        remedy: what to do about a file that is damaged, as the end of a sentence.

    Raises:
        ValueError: naming the file, if it is empty, cut off, not a JSON object or lacks one of `keys`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:  # UnicodeDecodeError is one
        found = "is empty" if path.stat().st_size == 0 else f"is not valid JSON ({error})"
        raise ValueError(f"{path} {found}: {remedy}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {content!r:.60} instead of an object: {remedy}.")
    missing = [key for key in keys if key not in content]
    if missing:
        raise ValueError(f"{path} has no {missing[0]!r}: {remedy}.")
    return content
