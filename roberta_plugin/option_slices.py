"""Options that extensions add to a dataclass of the trunk or of another extension.

The dataclass is the base; each extension registers a slice of it, a dataclass whose fields and checks are added
(`registry.TABLE_OPTIONS`, `registry.PREDICT_OPTIONS`). A slice says by `goes_with` (`settings.setting`) for which kinds
its options are. Its `__post_init__` calls `super()`'s, and then checks what fields cannot declare.
"""

from __future__ import annotations

import functools
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
    slices: list[type[Any]] = []
    owners = {item.name: "of " + base.__name__ for item in fields(base)}  # type: ignore[arg-type]
    for each in registry:
        try:
            added = _load(each, registry, owners)
        except Exception as error:  # whatever a foreign module raises
            owner = registry.owner(each)
            leave_out(f"The {registry.noun} {each!r} of {owner.package} is", owner, error)
            continue
        slices.append(added)
    made: type[T] = _composed(base, tuple(slices), name, module)  # type: ignore[arg-type]  # classes are hashable
    return made


def _load(name: str, registry: Registry[str], owners: dict[str, str]) -> type[Any]:
    """A slice, whose options no other one has."""
    added: type[Any] = registry.load(name)
    taken = [item.name for item in fields(added) if item.name in owners]
    if taken:
        raise ValueError(f"--{taken[0].replace('_', '-')} of {name} is an option {owners[taken[0]]} already")
    owners.update({item.name: f"of {name}" for item in fields(added)})
    return added


@functools.cache
def _composed(base: type[Any], slices: tuple[type[Any], ...], name: str, module: str) -> type[Any]:
    # Fields are collected from the last base class on: the fields of `base` come first.
    space = {"__module__": module, "__qualname__": name, "__doc__": base.__doc__}
    made: type[Any] = type(name, (*reversed(slices), base), space)
    return dataclass(frozen=True, kw_only=True)(made)
