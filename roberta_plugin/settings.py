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
import difflib
import enum
import math
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")
OnResume = Literal["same", "free", "batch"]  # what may change of an option when a run resumes
BAGS = ("sbatch", "env")  # settings that hold names and values
REQUIRED = dataclasses.MISSING
MISSING = "???"  # fairseq's and omegaconf's mark of a field without a default
_RULES = ("smallest", "largest", "above", "below", "goes_with", "excludes")  # of a field, checked by `check_values`
_MOST_SHOWN = 60  # characters of a value in a message
MOST_NAMES = 8  # that are listed where one of them must be chosen
_NULLS = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = (True, "true", "True", "TRUE"), (False, "false", "False", "FALSE")
_MANY = (tuple, Sequence)
_KINDS = {int: "a whole number", float: "a number"}


def setting(default: object, help_text: str, *, on_resume: OnResume = "same", **more: Any) -> Any:
    """A field with a default (REQUIRED: none; dict: an empty one) and a help text, which ends with limits and default.

    `more` may have `flag`, the option's name if it is not the field's (without dashes: a positional argument), what
    `check_values` checks, `default_text`, which the help shows for the default, `read`, a function that converts the
    option's texts instead of the field's type, `aliases`, other names of the option, `gives`, what a command looks for
    where the value is a model's name, and argparse's `metavar`, `nargs`, `const` and `action`. Checked are

        choices             the values, or a function that returns them, if the type (a Literal, or fairseq's
                            ChoiceEnum) does not say them
        smallest, largest   limits, of each value of a tuple
        above, below        limits that are themselves excluded
        goes_with           field -> its values with which the option has a meaning (None among them: not given), or a
                            function that returns them; no values: any that is given
        excludes            fields that cannot be given together with this one

    `on_resume` says of an option of fairseq-train what may change when a run resumes (`launch/resume_policy.py`). By
    default, another value is refused. With `changes_input=True`, fairseq-train itself goes on with another value, and
    warns that the model reads something else.

    `road` names what of a command the option is for, where the command has several ways: `check_roads` refuses it on
    the others.
    """
    if on_resume not in typing.get_args(OnResume):
        raise ValueError(f"on_resume must be {' or '.join(typing.get_args(OnResume))}, got {on_resume!r}.")
    metadata = {**more, "on_resume": on_resume, "help": help_text + _help_end(default, more)}
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Checked:
    """Base of settings that are checked by `check_values` when they are made."""

    def __post_init__(self) -> None:
        """Refuse invalid values, naming the option."""
        check_values(self)


def flag(item: dataclasses.Field[Any]) -> str:
    """An option as the command line spells it: `doc_stride` -> --doc-stride."""
    return str(item.metadata.get("flag") or f"--{item.name.replace('_', '-')}")


def add_options(
    parser: argparse._ActionsContainer, kind: type[Any], *, skip: Collection[str] = (), optional: Collection[str] = ()
) -> None:
    """Add an option for each field of a dataclass that has a help text, first those without a default.

    `from_arguments` reads the texts that they give. A field without a default must be given, if it is not `optional`.
    """
    hints = typing.get_type_hints(kind)
    for item in sorted(dataclasses.fields(kind), key=_has_default):
        if item.name not in skip and "help" in item.metadata:
            add_option(parser, item, hints[item.name], **({"required": False} if item.name in optional else {}))


def add_option(
    parser: argparse._ActionsContainer, item: dataclasses.Field[Any], hint: object, **more: Any
) -> argparse.Action:
    """Add the option of a field of type `hint` to a parser or group; returns argparse's action."""
    name, has = flag(item), item.metadata
    kind, choices = _plain(hint), choices_of(item, hint) or None
    arguments = {"help": has["help"], **more}
    if name.startswith("-"):
        arguments = {"dest": item.name, "required": not _has_default(item), **arguments}
    if kind is bool:
        action = has.get("action", "store_true")  # store_false: an option such as --no-progress, of show_progress
        return parser.add_argument(name, action=action, default=True if action == "store_false" else None, **arguments)
    metavar = "N" if kind in (int, float) else name.lstrip("-").replace("-", "_").upper()
    if "metavar" in has or not choices:
        arguments["metavar"] = has.get("metavar", metavar)
    if "nargs" in has:
        more = {each: has[each] for each in ("action", "const") if each in has}
        return parser.add_argument(name, nargs=has["nargs"], choices=choices, **more, **arguments)
    if typing.get_origin(kind) in (*_MANY, Mapping):
        return parser.add_argument(name, action="append", **arguments)
    return parser.add_argument(name, *has.get("aliases", ()), choices=choices, **arguments)


def from_arguments(kind: type[T], values: Mapping[str, Any], **fields: Any) -> T:
    """Make the dataclass `kind` from a command's arguments by field name; arguments that are not fields are left out.

    `fields` are values that the command does not take from its arguments.
    """
    hints, items = typing.get_type_hints(kind), dataclasses.fields(kind)  # type: ignore[arg-type]
    texts = {item.name: (item, values.get(item.name)) for item in items if item.init and item.name not in fields}
    converted = {
        name: item.metadata["read"](value)
        if "read" in item.metadata
        else _converted(flag(item), hints[name], value, "")
        for name, (item, value) in texts.items()
        if value is not None and (value != [] or "nargs" in item.metadata)
    }
    return kind(**converted, **fields)


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


def is_null(value: object) -> bool:
    """True if a value of YAML means "not given"."""
    return isinstance(value, str) and value in _NULLS


def check_values(settings: Any, kind: type[Any] | None = None) -> None:
    """Check all that the fields of a dataclass declare; see `setting`.

    Args:
        settings: the dataclass, or options of the dataclass `kind` in another form, as fairseq's Namespace or
            DictConfig, in which some may be missing.
        kind: the dataclass whose fields are checked, if `settings` is not one.

    Raises:
        ValueError: naming the option, its value and the remedy.
    """
    kind = kind or type(settings)
    hints, items = typing.get_type_hints(kind), {item.name: item for item in dataclasses.fields(kind)}
    for item in items.values():
        has, choices = item.metadata, choices_of(item, hints[item.name])
        if not choices and has.keys().isdisjoint(_RULES):
            continue
        _check_value(item, _value_of(settings, item), choices)
        if is_given(settings, item):
            _check_beside(settings, item, items)


def _check_value(item: dataclasses.Field[Any], value: object, choices: tuple[str, ...]) -> None:
    """Check the choices and limits of a value; of a tuple, each value. None is "not given"."""
    limits = limits_of(item.metadata)
    for one in () if value is None else value if isinstance(value, tuple) else (value,):
        if choices and str(one) not in choices:
            raise ValueError(f"{flag(item)} must be {' or '.join(choices)}, got {str(one)!r}.")
        if limits and not _is_within(one, item.metadata):
            raise ValueError(f"{flag(item)} must be {limits}, got {one}.")


def _check_beside(settings: Any, item: dataclasses.Field[Any], items: Mapping[str, dataclasses.Field[Any]]) -> None:
    """Check that the other options go with this one, which is given."""
    for name, values in item.metadata.get("goes_with", {}).items():
        values = values() if callable(values) else values
        other = _value_of(settings, items[name])
        if not (other in values if values else is_given(settings, items[name])):
            wanted = " ".join([flag(items[name]), " or ".join(each for each in values if each is not None)]).strip()
            but = f", not with {other}" if values and is_given(settings, items[name]) else ""
            raise ValueError(f"{flag(item)} goes with {wanted}{but}: give that, or leave {flag(item)} out.")
    for name in item.metadata.get("excludes", ()):
        if is_given(settings, items[name]):
            raise ValueError(f"{flag(item)} and {flag(items[name])} exclude each other: leave one of them out.")


def check_roads(settings: Any, closed: Mapping[str, str], *, kind: type[Any] | None = None) -> None:
    """Refuse options that would change nothing: those whose `road` is closed.

    Args:
        settings: the dataclass, or options of the dataclass `kind` in another form, as an argparse.Namespace.
        closed: road -> what closes it, as the end of a sentence.
        kind: the dataclass of the options, if `settings` is not one.

    Raises:
        ValueError: naming all such options.

    Example:
        check_roads(settings, {"text": "with data-bin, which is a data-bin"})
    """
    found: dict[str, list[str]] = {}
    for item in dataclasses.fields(kind or type(settings)):
        road = str(item.metadata.get("road"))
        if road in closed and is_given(settings, item):
            found.setdefault(closed[road], []).append(flag(item))
    for reason, flags in found.items():
        verb, it = ("has", "it") if len(flags) == 1 else ("have", "them")
        raise ValueError(f"{', '.join(flags)} {verb} no effect {reason}: leave {it} out.")


def choices_of(item: dataclasses.Field[Any], hint: object) -> tuple[str, ...]:
    """The values that an option of type `hint` may have; empty: any of its type."""
    kind = _plain(hint)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):  # fairseq's ChoiceEnum
        return tuple(str(member.value) for member in kind)
    of_type = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    choices = item.metadata.get("choices") or of_type
    return tuple(choices() if callable(choices) else choices)


def limits_of(has: Mapping[str, Any]) -> str:
    """The limits in a field's metadata, in words; empty if it has none."""
    if "smallest" in has and "largest" in has:
        return f"from {has['smallest']:g} to {has['largest']:g}"
    words = {"smallest": "{:g} or more", "above": "greater than {:g}", "largest": "at most {:g}", "below": "below {:g}"}
    return " and ".join(text.format(has[name]) for name, text in words.items() if name in has)


def is_given(settings: Any, item: dataclasses.Field[Any]) -> bool:
    """True if an option has a value that is not its default."""
    value = _value_of(settings, item)
    return value is not None and value != _default_of(item)


def short(value: object) -> str:
    """A value as messages show it: at most 60 characters of its notation."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _MOST_SHOWN:
            return f"{text[: _MOST_SHOWN - 3]}..."
    return text


def _pieces(value: object) -> Iterator[str]:
    """The notation of a value, bit by bit: YAML's anchors can make a long one of a few hundred bytes."""
    if isinstance(value, Mapping):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield ", " * (number > 0)
            yield from _pieces(key)
            yield ": "
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "[" if isinstance(value, list) else "("
        for number, item in enumerate(value):
            yield ", " * (number > 0)
            yield from _pieces(item)
        yield "]" if isinstance(value, list) else "," * (len(value) == 1) + ")"
    elif isinstance(value, int) and abs(value) >= 10**_MOST_SHOWN:
        yield f"a number of {len(hex(value)) * 1.2:,.0f} digits"  # Python refuses to write it
    else:
        yield repr(value[: _MOST_SHOWN + 1] if isinstance(value, str | bytes) else value)


def option_field(settings: Any, name: str) -> dataclasses.Field[Any]:
    """The field of a dataclass with this name."""
    return next(item for item in dataclasses.fields(settings) if item.name == name)


def check_names(values: Iterable[str], *, known: Iterable[str], where: str, hint: str = "") -> None:
    """Refuse names that are not `known`.

    Raises:
        ValueError: naming the first of them and all that are known; `hint` ends the message.
    """
    known = sorted(known)
    unknown = sorted(set(values) - set(known))
    if unknown:
        near = nearest(unknown[0], known).removeprefix(": ").capitalize()
        raise ValueError(
            f"{where} has the unknown key {unknown[0]!r} (--{unknown[0]}): use {', '.join(known)}{hint}."
            f"{near and f' {near}.'}"
        )


def nearest(name: str, names: Iterable[str]) -> str:
    """`: the nearest are A, B`; empty if none of `names` is near. Names that contain `name` come first.

    Capitals, and _ for -, make no difference.
    """

    def plain(text: str) -> str:
        return text.lower().replace("_", "-")

    candidates = {plain(candidate): candidate for candidate in names}
    name = plain(name)
    near = [name] if name in candidates else [plain_name for plain_name in candidates if name.strip("-") in plain_name]
    near += difflib.get_close_matches(name, candidates, MOST_NAMES, cutoff=0.7)
    originals = [candidates[plain_name] for plain_name in dict.fromkeys(near)][:MOST_NAMES]
    return f": the nearest {'are' if len(originals) > 1 else 'is'} {', '.join(originals)}" if originals else ""


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


def _default_of(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _value_of(settings: Any, item: dataclasses.Field[Any]) -> Any:
    """The value of an option; its default if the options are from an earlier version without it."""
    return getattr(settings, item.name, _default_of(item))


def _is_within(value: object, has: Mapping[str, Any]) -> bool:
    """True if a number is within the limits; nan and the infinities never are."""
    return bool(
        value >= has.get("smallest", -math.inf)
        and value <= has.get("largest", math.inf)
        and value > has.get("above", -math.inf)
        and value < has.get("below", math.inf)
    )


def _help_end(default: object, has: Mapping[str, Any]) -> str:
    """The end of an option's help: its limits and its default."""
    parts, text = [limits_of(has)], has.get("default_text", default)
    if text not in (None, "", (), dict, REQUIRED, MISSING) and not isinstance(text, bool):
        parts.append(f"default: {' '.join(map(str, text)) if isinstance(text, tuple) else text}")
    end = "; ".join(filter(None, parts))
    return f" ({end})" if end else ""


def _plain(hint: object) -> Any:
    """The type of a field that may also be None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _converted(option: str, hint: Any, value: Any, where: str) -> Any:
    """A value as the type of its field."""
    kind = _plain(hint)
    begin, named = f"{where}: " if where else "", f"{option.lstrip('-').replace('-', '_')} ({option})"
    if typing.get_origin(kind) is Mapping:
        return value if isinstance(value, Mapping) else parse_pairs(value, option=option)
    if typing.get_origin(kind) in _MANY:
        items, inner = _listed(value), typing.get_args(kind)[0]
        if typing.get_origin(inner) not in _MANY and any(isinstance(item, list | Mapping) for item in items):
            raise ValueError(f"{begin}each value of {named} must be one text, got {short(value)}.")
        if isinstance(value, Mapping):  # YAML's mapping is the command line's NAME=VALUE, given several times
            return tuple(f"{key}={item}" for key, item in value.items())
        return tuple(_converted(option, inner, item, where) for item in items)
    if kind is bool:
        if value not in (*_TRUE, *_FALSE):
            raise ValueError(f"{begin}{named} must be true or false, got {short(value)}.")
        return value in _TRUE
    if isinstance(value, list | Mapping):
        raise ValueError(f"{begin}{named} must be one value, got {short(value)}.")
    return _converted_one(f"{begin}{option}", str if typing.get_origin(kind) is typing.Literal else kind, value)


def _listed(value: Any) -> Iterable[Any]:
    """The values of an option that may have several, as YAML or the command line give them."""
    if isinstance(value, Mapping):
        return value.values()
    return [value] if isinstance(value, str) else value


def _converted_one(option: str, kind: type[Any], value: object) -> Any:
    """A single value as a text, number or path; messages begin with the `option`."""
    if kind is Path and value == "":
        raise ValueError(f"{option} is empty: name a file or folder.")
    try:
        converted: Any = kind(value)
    except (TypeError, ValueError) as error:
        expected = _KINDS.get(kind, f"a {kind.__name__}")
        raise ValueError(f"{option} is {short(value)}, which is not {expected}.") from error
    if kind is float and not math.isfinite(converted):
        raise ValueError(f"{option} is {short(value)}, which is not a finite number.")
    return converted
