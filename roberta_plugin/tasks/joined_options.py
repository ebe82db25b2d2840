"""The options of a task of fairseq, with those that extensions add.

Example: an extension registers the masking "rare" with a dataclass that has the field `rare_power`. Then the
pretraining task has the option --rare-power, which goes with --masking rare alone.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any, NoReturn

from roberta_plugin.option_slices import load_options, option_names, owners_of
from roberta_plugin.registry import OURS, Registry


def join_options(base: type[Any], added: Iterable[tuple[str, Registry[Any]]], *, name: str) -> type[Any]:
    """The dataclass `base`, called `name`, with the option fields of the entries of some registries.

    Each registry comes with the field of `base` that chooses one of its entries. The help of that field lists them all,
    and the options of an entry go with its name. Options that cannot be imported, or that have the name of another one,
    are left out with one line.
    """
    new: dict[str, tuple[Any, dataclasses.Field[Any]]] = {}
    hints = typing.get_type_hints(base)
    taken, own = owners_of(base), {item.name: item for item in dataclasses.fields(base)}
    for chooser, registry in added:
        field = own[chooser]
        choices = [f"{key} ({entry.summary})" if entry.summary else key for key, entry in registry.items()]
        text = f"{field.metadata['help']}; one of {', '.join(choices)}"
        new[chooser] = (hints[chooser], _copy(field, help=text))
        entries: dict[Any, list[str]] = {}
        for entry in registry:  # several may have the same options
            entries.setdefault((registry.owner(entry).name, registry[entry].options), []).append(entry)
        together = {names[0]: names for (_, options), names in entries.items() if options}
        for first, kind in load_options(registry, together, part="options", taken=taken):
            new |= _fields_of(kind, goes_with={chooser: tuple(together[first])})
    fields = [(key, kind, field) for key, (kind, field) in new.items()]
    joined = dataclasses.make_dataclass(name, fields, bases=(base,))
    joined.__module__, joined.__doc__ = base.__module__, base.__doc__
    return joined


def options_of(registry: Registry[Any], entry: str, cfg: Any) -> Any:
    """The dataclass of an entry's options with their values in `cfg`; None if the entry has no options."""
    if not registry[entry].options:
        return None
    kind = registry.load(entry, "options")
    names = [item.name for item in dataclasses.fields(kind) if item.init]
    return kind(**{name: getattr(cfg, name) for name in names if hasattr(cfg, name)})


def note_packages(cfg: Any, chosen: Iterable[tuple[Registry[Any], str | None]]) -> None:
    """Note in the options that checkpoints keep which packages have brought the chosen entries."""
    packages = {registry.owner(name).package for registry, name in chosen if name} - {OURS}
    if packages and "brought_by" in cfg:
        cfg.brought_by = " and ".join(sorted(packages))


def refuse_unknown(registry: Registry[Any], name: str, cfg: Any, *, option: str) -> NoReturn:
    """Refuse an entry that is not registered, with the package that has brought it, if a checkpoint says so."""
    package = str(getattr(cfg, "brought_by", None) or "")
    known = bool(package) and not package.startswith("${") and "/" not in package
    remedy = f"It was brought by {package}: install that" if known else "Install the package that brings it"
    raise ValueError(f"{option} {name}: {registry.unknown(name)} {remedy}, or name its folder by --user-dir.")


def _fields_of(
    kind: type[Any], *, goes_with: dict[str, tuple[str, ...]]
) -> dict[str, tuple[Any, dataclasses.Field[Any]]]:
    """The fields of a dataclass of options, by name, with their types."""
    types, names = typing.get_type_hints(kind), option_names(kind)
    return {
        item.name: (types[item.name], _copy(item, goes_with=item.metadata.get("goes_with", goes_with)))
        for item in dataclasses.fields(kind)
        if item.name in names
    }


def _copy(item: dataclasses.Field[Any], **metadata: Any) -> Any:
    """A field of the same default with more metadata."""
    default: dict[str, Any] = {"default": item.default}
    if item.default_factory is not dataclasses.MISSING:
        default = {"default_factory": item.default_factory}
    return dataclasses.field(**default, metadata={**item.metadata, **metadata})
