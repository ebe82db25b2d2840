"""Texts -> typed settings: the one converter for recipes, the `slurm` section of grid files and NAME=VALUE options.

Settings are frozen dataclasses; `convert` makes one from texts, as `options_file.read_yaml` and argparse give them. The
standard library's dataclasses are used and not OmegaConf's structured configurations, which fairseq brings: those read
YAML's types first (`24:00:00` becomes 86400, `1e-4` a string, `no` a boolean), do not know tuples, and name neither the
file nor the option in their errors.

Example:
    convert(Resources, {"nodes": "2", "qos": "null"}, where="recipe.yaml")  ->  Resources(nodes=2)
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
BAGS = ("sbatch", "env")  # settings that hold names and values
REQUIRED = dataclasses.MISSING
_NULLS = ("", "~", "null", "Null", "NULL")
_MANY = (tuple, Sequence)
_KINDS = {int: "a whole number", float: "a number"}


def setting(default: Any, help_text: str, **more: Any) -> Any:
    """A field with a default (REQUIRED: none; dict: an empty one) and the help text that the command line shows.

    `more` may have `flag`, the option's name if it is not the field's (without dashes: a positional argument),
    `choices`, the limits `smallest`, `largest` and `above` (itself excluded), which apply to each value of a tuple,
    `default_text`, which the help shows for the default, `read`, a function that converts the option's texts instead
    of the field's type, and argparse's `metavar`, `nargs`, `const` and `action`.
    """
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata={"help": help_text, **more})
    return dataclasses.field(default=default, metadata={"help": help_text, **more})


class Checked:
    """Base of settings that check their `choices` and limits when they are made."""

    def __post_init__(self) -> None:
        """Refuse invalid values, naming the option."""
        check_values(self)


def flag(item: dataclasses.Field[Any]) -> str:
    """An option as the command line spells it: `doc_stride` -> --doc-stride."""
    return str(item.metadata.get("flag") or f"--{item.name.replace('_', '-')}")


def add_options(parser: Any, kind: type[Any], *, skip: Collection[str] = (), optional: Collection[str] = ()) -> None:
    """Add an option for each field of a dataclass that has a help text, first those without a default.

    `from_arguments` reads the texts that they give. A field without a default must be given, if it is not `optional`.
    """
    hints = typing.get_type_hints(kind)
    for item in sorted(dataclasses.fields(kind), key=_has_default):
        if item.name not in skip and "help" in item.metadata:
            add_option(parser, item, hints[item.name], **({"required": False} if item.name in optional else {}))


def add_option(parser: Any, item: dataclasses.Field[Any], hint: Any, **more: Any) -> Any:
    """Add the option of a field of type `hint` to a parser or group; returns argparse's action."""
    name, has = flag(item), item.metadata
    kind, choices = _plain(hint), has.get("choices") or _choices_of(hint) or None
    given = {"help": has["help"] + _default_text(item), **more}
    if name.startswith("-"):
        given = {"dest": item.name, "required": not _has_default(item), **given}
    if kind is bool:
        action = has.get("action", "store_true")  # store_false: an option such as --no-progress, of show_progress
        return parser.add_argument(name, action=action, default=None if action == "store_true" else True, **given)
    metavar = "N" if kind in (int, float) else name.lstrip("-").replace("-", "_").upper()
    if "metavar" in has or not choices:
        given["metavar"] = has.get("metavar", metavar)
    if "nargs" in has:
        more = {each: has[each] for each in ("action", "const") if each in has}
        return parser.add_argument(name, nargs=has["nargs"], choices=choices, **more, **given)
    if typing.get_origin(kind) in (*_MANY, Mapping):
        return parser.add_argument(name, action="append", **given)
    return parser.add_argument(name, choices=choices, **given)


def from_arguments(kind: type[T], values: Mapping[str, Any], **known: Any) -> T:
    """Make the dataclass `kind` from a command's arguments by field name, of which it takes those that it has.

    `known` are fields that the command knows otherwise.
    """
    hints, items = typing.get_type_hints(kind), dataclasses.fields(kind)  # type: ignore[arg-type]
    given = {item.name: (item, values.get(item.name)) for item in items if item.init and item.name not in known}
    found = {
        name: item.metadata["read"](value)
        if "read" in item.metadata
        else _converted(flag(item), hints[name], value, "")
        for name, (item, value) in given.items()
        if value is not None and (value != [] or "nargs" in item.metadata)
    }
    return kind(**found, **known)


def convert(kind: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """Make the dataclass `kind` from texts by field name; a null, as in YAML, leaves the default.

    Args:
        kind: a dataclass whose fields are str, int, float, bool, Path, mappings (kept as they are), a union of one of
            these with None, or tuples of one of these. A tuple may be a list, a single text, or a mapping (NAME=VALUE).
        values: texts, or values that have the field's type already; None and nulls count as not given. Numbers are
            finite.
        where: file or command, for messages.

    Raises:
        ValueError: for an unknown name or a value of another type; names the option.
    """
    hints = typing.get_type_hints(kind)
    check_names((name for name, value in values.items() if value is not None), known=hints, where=where)
    values = {name: value for name, value in values.items() if value is not None and not is_null(value)}
    for needed in dataclasses.fields(kind):  # type: ignore[arg-type]
        if needed.init and not _has_default(needed) and needed.name not in values:
            raise ValueError(f"{where}: {needed.name.replace('_', '-')} is missing: give it a value.")
    return kind(
        **{name: _converted(f"--{name.replace('_', '-')}", hints[name], item, where) for name, item in values.items()}
    )


def is_null(value: Any) -> bool:
    """Whether a value of YAML stands for "not given"."""
    return isinstance(value, str) and value in _NULLS


def check_values(settings: Any) -> None:
    """Check every field's `choices`, `smallest`, `largest` and `above`."""
    hints = typing.get_type_hints(type(settings))
    for item in dataclasses.fields(settings):
        value, has = getattr(settings, item.name), item.metadata
        least, most, above = has.get("smallest"), has.get("largest"), has.get("above")
        choices = has.get("choices") or _choices_of(hints[item.name])
        for one in () if value is None else value if isinstance(value, tuple) else (value,):
            if choices and one not in choices:
                raise ValueError(f"{flag(item)} must be {' or '.join(choices)}, got {one!r}.")
            is_low = (least is not None and not one >= least) or (above is not None and not one > above)
            if is_low or (most is not None and not one <= most):
                right = f"{least} or more" if above is None else f"greater than {above}"
                if most is not None:
                    right = f"from {least:g} to {most:g}" if above is None else f"{right} and at most {most:g}"
                raise ValueError(f"{flag(item)} must be {right}, got {one}.")


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


def _has_default(item: dataclasses.Field[Any]) -> bool:
    return item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING


def _default_text(item: dataclasses.Field[Any]) -> str:
    """The default, as the end of the option's help."""
    text = item.metadata.get("default_text", item.default)
    if text in (None, "", (), dataclasses.MISSING) or isinstance(text, bool):
        return ""
    return f" (default: {' '.join(map(str, text)) if isinstance(text, tuple) else text})"


def _plain(hint: Any) -> Any:
    """The type of a field that may also be None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _choices_of(hint: Any) -> tuple[str, ...]:
    """The values of a Literal."""
    kind = _plain(hint)
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _converted(option: str, hint: Any, value: Any, where: str) -> Any:
    """A value as the type of its field."""
    kind, name = _plain(hint), option.lstrip("-").replace("-", "_")
    begin = f"{where}: " if where else ""
    if typing.get_origin(kind) is Mapping:
        return value if isinstance(value, Mapping) else parse_pairs(value, option=option)
    if typing.get_origin(kind) in _MANY:
        items = value.values() if isinstance(value, Mapping) else [value] if isinstance(value, str) else value
        inner = typing.get_args(kind)[0]
        if typing.get_origin(inner) not in _MANY and any(isinstance(item, list | Mapping) for item in items):
            raise ValueError(f"{begin}each value of {name} ({option}) must be one text, got {value!r}.")
        if isinstance(value, Mapping):
            return tuple(f"{key}={item}" for key, item in value.items())
        return tuple(_converted(option, inner, item, where) for item in items)
    if kind is bool and value in (True, "true", "True", "TRUE", False, "false", "False", "FALSE"):
        return value in (True, "true", "True", "TRUE")
    if isinstance(value, list | Mapping) or kind is bool:
        expected = "true or false" if kind is bool else "one value"
        raise ValueError(f"{begin}{name} ({option}) must be {expected}, got {value!r}.")
    kind = str if typing.get_origin(kind) is typing.Literal else kind
    if kind is Path and value == "":
        raise ValueError(f"{begin}{option} is empty: name a file or folder.")
    try:
        found: Any = kind(value)
    except (TypeError, ValueError) as error:
        expected = _KINDS.get(kind, f"a {kind.__name__}")
        raise ValueError(f"{begin}{option} is {value!r}, which is not {expected}.") from error
    if kind is float and not math.isfinite(found):
        raise ValueError(f"{begin}{option} is {value!r}, which is not a finite number.")
    return found
