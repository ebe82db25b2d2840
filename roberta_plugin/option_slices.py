"""Options that extensions add to a dataclass of the trunk or of another extension.

The dataclass is the base; each extension registers a slice of it, a dataclass whose fields and checks are added
(`registry.TABLE_OPTIONS`, `registry.PREDICT_OPTIONS`). A slice says by `goes_with` (`settings.setting`) for which kinds
its options are. Its `__post_init__` calls `super()`'s, and then checks what fields cannot declare.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from roberta_plugin.registry import Registry, leave_out

T = TypeVar("T")


def compose(base: type[T], registry: Registry[str], *, name: str, module: str) -> type[T]:
    """The dataclass `base` with the slices that are registered; `module` and `name` are where it can be imported.

    It is made once, and anew after a further registration.

    Example:
        compose(TableOptions, TABLE_OPTIONS, name="CustomOptions", module=__name__)  ->  a subclass of TableOptions
    """
    slices = tuple(added for _, added in load_options(registry, registry, taken=owners_of(base)))
    made: type[T] = _composed(base, slices, name, module)  # type: ignore[arg-type]  # classes are hashable
    return made


def owners_of(base: type[Any]) -> dict[str, str]:
    """The options of a dataclass, each with the name of what has it, for `load_options`."""
    return dict.fromkeys(option_names(base), base.__name__)


def option_names(options: type[Any]) -> list[str]:
    """The fields of a dataclass of options, without the one that fairseq's dataclasses have for themselves."""
    return [item.name for item in fields(options) if item.name != "_name"]


def load_options(
    registry: Registry[Any], entries: Iterable[str], *, part: str = "", taken: dict[str, str]
) -> Iterator[tuple[str, type[Any]]]:
    """The dataclasses of options that entries of a registry name, each with its entry.

    `taken` says what has each option already, and is added to. A dataclass that cannot be imported, or that has an
    option of another one, is left out with one line.
    """
    for entry in entries:
        try:
            added: type[Any] = registry.load(entry, part)
            names = option_names(added)
            if both := [name for name in names if name in taken]:
                raise ValueError(f"--{both[0].replace('_', '-')} of {entry} is an option of {taken[both[0]]} already")
        except Exception as error:  # whatever a foreign module raises
            owner = registry.owner(entry)
            leave_out(f"The options {entry!r} of {owner.package} are", owner, error)
            continue
        taken.update(dict.fromkeys(names, entry))
        yield entry, added


@functools.cache
def _composed(base: type[Any], slices: tuple[type[Any], ...], name: str, module: str) -> type[Any]:
    # Fields are collected from the last base class on: the fields of `base` come first.
    space = {"__module__": module, "__qualname__": name, "__doc__": base.__doc__}
    made: type[Any] = type(name, (*reversed(slices), base), space)
    return dataclass(frozen=True, kw_only=True)(made)
