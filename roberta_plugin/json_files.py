"""JSON files of the commands: written complete or not at all, read with errors that name the file and a remedy."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.files import write_text


def read_json(path: Path, *, keys: Iterable[str], remedy: str) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file does not exist.

    Raises:
        ValueError: naming the file, if it is empty, truncated, not a JSON object, or lacks one of `keys`.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:  # UnicodeDecodeError is one
        found = "is empty" if path.stat().st_size == 0 else f"is not valid JSON ({error})"
        raise ValueError(f"{path} {found}: {remedy}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {content!r:.60} instead of an object: {remedy}.")
    missing = [key for key in keys if key not in content]
    if missing:
        raise ValueError(f"{path} lacks the key {missing[0]!r}: {remedy}.")
    return content


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: if it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_json(path: Path, content: Any, **options: Any) -> None:
    """Write a value to a JSON file, with an indent of 2; `options` are those of `json.dumps`."""
    write_text(path, f"{json_text(content, **{'indent': 2, **options})}\n")


def json_text(value: Any, **options: Any) -> str:
    """A value as JSON, with null for each number that is not finite; `options` are those of `json.dumps`."""
    return json.dumps(plain(value), allow_nan=False, **options)


def plain(value: Any) -> Any:
    """`value` with None for each number that is not finite, as the loss of a run that has diverged: JSON has no NaN.

    Example:
        plain({"loss": [9.1, math.nan]})  ->  {"loss": [9.1, None]}
    """
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256_of_json(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
