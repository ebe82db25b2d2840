"""JSON files of the commands: written complete or not at all, read with errors that name the file and a remedy."""

from __future__ import annotations

import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import write_text
from roberta_plugin.settings import short

_SURROGATES = re.compile("[\\ud800-\\udfff]")
_NO_TYPES: Mapping[str, Any] = {}
_OF_JSON: Mapping[Any, tuple[type, str]] = {  # types of Python -> theirs in JSON, and in words
    **dict.fromkeys((dict, Mapping), (dict, "an object")),
    **dict.fromkeys((list, tuple, Sequence), (list, "a list")),
    str: (str, "a text"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    type(None): (type(None), "null"),
}


def read_json(
    path: Path, *, keys: Iterable[str], remedy: str, hints: Mapping[str, Any] = _NO_TYPES
) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file does not exist.

    Args:
        path: the file.
        keys: keys that it must have.
        remedy: what to do with a damaged file.
        hints: types of the values, as of a dataclass; the insides of lists and objects are not checked.

    Raises:
        ValueError: naming the file, if it is empty, truncated, not a JSON object, without one of `keys`, or has a value
            of another type.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:  # UnicodeDecodeError is one
        defect = "is empty" if path.stat().st_size == 0 else f"is not valid JSON ({error})"
        raise ValueError(f"{path} {defect}: {remedy}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {short(content)} instead of an object: {remedy}.")
    missing = [key for key in keys if key not in content]
    if missing:
        raise ValueError(f"{path} does not have the key {missing[0]!r}: {remedy}.")
    for key, hint in hints.items():
        if key in content and (fault := type_fault(content[key], hint)):
            raise ValueError(f"{path}: {key!r} is {fault}: {remedy}.")
    return content


def type_fault(value: object, hint: object) -> str | None:
    """A clause on a value of JSON that does not have the type `hint`; None if it has.

    Examples: "x" for int | None  ->  "'x', which is not a whole number or null"
              1 for float         ->  None: JSON may write 1.0 as 1
              true for int        ->  "True, which is not a whole number", though bool is a subclass of int
    """
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    allowed = [_OF_JSON[typing.get_origin(one) or one] for one in members]
    kinds = tuple(kind for kind, _ in allowed) + ((int,) if float in members else ())
    is_right = isinstance(value, kinds) and not isinstance(value, bool)
    return None if is_right else f"{short(value)}, which is not {' or '.join(words for _, words in allowed)}"


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: if it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_json(path: Path, content: object, **options: Any) -> None:
    """Write a value to a JSON file, with an indent of 2; `options` are as for `json.dumps`."""
    write_text(path, f"{json_text(content, **{'indent': 2, **options})}\n")


def json_text(value: object, **options: Any) -> str:
    """A value as JSON, with null for each number that is not finite; `options` are as for `json.dumps`.

    Names of files that are not UTF-8, which Python gives as halves of surrogate pairs, are escaped.
    """
    text = json.dumps(plain(value), allow_nan=False, **options)
    return _SURROGATES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def plain(value: object) -> Any:
    """`value` with None for each number that is not finite, as the loss of a run that has diverged: JSON has no NaN.

    Example:
        plain({"loss": [9.1, math.nan]})  ->  {"loss": [9.1, None]}
    """
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256_of_json(value: object) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
