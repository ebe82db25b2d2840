"""Texts -> typed settings: the one converter for recipes, the `slurm` section of grid files and NAME=VALUE options.

Settings are frozen dataclasses; `convert` makes one from texts, as `options_file.read_yaml` and argparse give them. The
standard library's dataclasses are used and not OmegaConf's structured configurations, which fairseq brings: those read
YAML's types first (`24:00:00` becomes 86400, `1e-4` a string, `no` a boolean), do not know tuples, and name neither the
file nor the option in their errors.

Example:
    convert(Resources, {"nodes": "2", "qos": "null"}, where="recipe.yaml")  ->  Resources(nodes=2)
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from roberta_plugin.training.options_file import is_null

T = TypeVar("T")
BAGS = ("sbatch", "env")  # settings that hold names and values
_KINDS = {int: "a whole number", float: "a number"}


def setting(default: Any, help_text: str) -> Any:
    """A field with a default and the help text that the command line shows."""
    return dataclasses.field(default=default, metadata={"help": help_text})


def add_options(parser: argparse.ArgumentParser, kind: type[Any], *, skip: Collection[str] = ()) -> None:
    """Add an option for each field of a dataclass that has a help text; `convert` reads the texts that they give."""
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        if item.name in skip or "help" not in item.metadata:
            continue
        flag, help_text = f"--{item.name.replace('_', '-')}", item.metadata["help"]
        if hints[item.name] is bool:
            parser.add_argument(flag, action="store_true", default=None, help=help_text)
        elif typing.get_origin(hints[item.name]) is tuple:
            parser.add_argument(flag, action="append", metavar=item.name.upper(), help=help_text)
        else:
            default = "" if item.default in (None, "", dataclasses.MISSING) else f" (default: {item.default})"
            parser.add_argument(flag, metavar=item.name.upper(), help=help_text + default)


def convert(kind: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """Make the dataclass `kind` from texts by field name; a null, as in YAML, leaves the default.

    Args:
        kind: a dataclass whose fields are str, int, float, bool, Path, mappings (kept as they are), a union of one of
            these with None, or tuples of str. A tuple may be a list, a single text, or a mapping (NAME=VALUE).
        values: texts, or values that have the field's type already; None and nulls count as not given. Numbers are
            finite.
        where: file or command, for messages.

    Raises:
        ValueError: for an unknown name or a value of another type; names the option.
    """
    values = {name: value for name, value in values.items() if value is not None and not is_null(value)}
    hints = typing.get_type_hints(kind)
    check_names(values, known=hints, where=where)
    for needed in dataclasses.fields(kind):  # type: ignore[arg-type]
        has_default = needed.default is not dataclasses.MISSING or needed.default_factory is not dataclasses.MISSING
        if needed.init and not has_default and needed.name not in values:
            raise ValueError(f"{where}: {needed.name.replace('_', '-')} is missing: give it a value.")
    return kind(**{name: _converted(name, hints[name], value, where) for name, value in values.items()})


def check_names(values: Iterable[str], *, known: Iterable[str], where: str, hint: str = "") -> None:
    """Refuse names that are not `known`.

    Raises:
        ValueError: naming the first of them and all that are known; `hint` ends the message.
    """
    known = sorted(known)
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{where} has the unknown key {unknown[0]!r} (--{unknown[0]}): use {', '.join(known)}{hint}.")


def parse_pairs(texts: Iterable[str], *, option: str) -> dict[str, Any]:
    """NAME=VALUE texts as a dictionary; dashes in a name become underscores.

    `env.NAME` and `sbatch.NAME` need no value (None), as `--env NAME` and `--sbatch NAME` of `roberta launch`.

    Raises:
        ValueError: for another text without `=`, or a name that is given twice.

    Example:
        parse_pairs(["time=8:00:00", "env.HF_TOKEN"], option="--slurm")  ->  {"time": "8:00:00", "env.HF_TOKEN": None}
    """
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        prefix, dot, rest = name.partition(".")  # sbatch.mail-type and env.NAME keep the spelling after the dot
        name = prefix.replace("-", "_") + dot + rest
        if not name or (not equals and not (prefix in BAGS and rest)):
            raise ValueError(f"{option} {text!r} must have the form NAME=VALUE.")
        if name in pairs:
            raise ValueError(f"{option} gives {name} twice.")
        pairs[name] = value if equals else None
    return pairs


def _converted(name: str, kind: Any, value: Any, where: str) -> Any:
    """A value as the type of its field."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is Mapping and isinstance(value, Mapping):
        return value
    if typing.get_origin(kind) is tuple:
        items = value.values() if isinstance(value, Mapping) else [value] if isinstance(value, str) else value
        if any(isinstance(item, list | Mapping) for item in items):
            raise ValueError(f"{where}: each value of {name} ({option}) must be one text, got {value!r}.")
        if isinstance(value, Mapping):
            return tuple(f"{key}={item}" for key, item in value.items())
        return tuple(map(str, items))
    if kind is bool and value in (True, "true", "True", "TRUE", False, "false", "False", "FALSE"):
        return value in (True, "true", "True", "TRUE")
    if isinstance(value, list | Mapping) or kind is bool:
        expected = "true or false" if kind is bool else "one value"
        raise ValueError(f"{where}: {name} ({option}) must be {expected}, got {value!r}.")
    try:
        found = kind(value)
    except (TypeError, ValueError) as error:
        expected = _KINDS.get(kind, f"a {kind.__name__}")
        raise ValueError(f"{where}: {option} is {value!r}, which is not {expected}.") from error
    if kind is float and not math.isfinite(found):
        raise ValueError(f"{where}: {option} is {value!r}, which is not a finite number.")
    return found
