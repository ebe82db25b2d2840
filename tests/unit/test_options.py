"""Every option of every settings dataclass, ours and fairseq's: what its field declares is checked, and its help says.

Limits are tried at, below and above each bound, choices with a value that is none, `goes_with` and `excludes` both ways.
"""

import argparse
import dataclasses
import importlib
import math
import pkgutil
import typing
from argparse import Namespace
from pathlib import Path

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass import FairseqDataclass
from fairseq.models import MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.tasks import TASK_REGISTRY

import roberta_plugin
from roberta_plugin.launch.resources import Resources, check_resources
from roberta_plugin.settings import REQUIRED, add_options, check_values, choices_of, flag, limits_of

LONGEST_HELP = 200


def settings_classes():
    """All dataclasses of the package that have an option."""
    found = {}
    for module in pkgutil.walk_packages(roberta_plugin.__path__, "roberta_plugin."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            is_ours = isinstance(value, type) and value.__module__.startswith("roberta_plugin.")
            if (
                is_ours
                and dataclasses.is_dataclass(value)
                and any("help" in i.metadata for i in dataclasses.fields(value))
            ):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


CLASSES = settings_classes()


def options_of(kind):
    return {item.name: item for item in dataclasses.fields(kind) if "help" in item.metadata}


def value_within(item, hint):
    """A value that the option may have, and that is not its default."""
    has, choices = item.metadata, choices_of(item, hint)
    if choices:
        return next(each for each in choices if each != str(item.default))
    if bound := [has[name] for name in ("smallest", "largest") if name in has and has[name] != item.default]:
        return bound[-1]
    if limits_of(item.metadata):
        return (has.get("above", 0) + has.get("below", 2)) / 2
    return "given"


def refusal(kind, /, **values):
    """What `check_values` says of these values and the defaults of the other options; empty: nothing."""
    defaults = {item.name: None if item.default is REQUIRED else item.default for item in dataclasses.fields(kind)}
    try:
        check_values(Namespace(**{**defaults, **values}), kind)
    except ValueError as error:
        return str(error)
    return ""


def company(kind, item):
    """Values of other options with which an option has a meaning."""
    hints, items, found = typing.get_type_hints(kind), options_of(kind), {}
    for name, values in item.metadata.get("goes_with", {}).items():
        found[name] = values[0] if values else value_within(items[name], hints[name])
        found |= company(kind, items[name])
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_field_declares_is_checked(name):
    kind = CLASSES[name]
    hints, items = typing.get_type_hints(kind), options_of(kind)
    for item in items.values():
        has, option, others = item.metadata, flag(item), company(kind, item)
        known = value_within(item, hints[item.name])
        assert not refusal(kind, **others, **{item.name: known})
        if choices_of(item, hints[item.name]):
            said = refusal(kind, **others, **{item.name: "nonsense"})
            assert said.startswith(f"{option} must be ") and said.endswith("got 'nonsense'.")
            assert all(f" {each}" in said for each in choices_of(item, hints[item.name]))
        step = 1 if "int" in str(hints[item.name]) else 1e-9
        wrong = {"smallest": -step, "largest": step, "above": 0, "below": 0}
        for bound in wrong.keys() & has.keys():
            right = -wrong[bound] or (step if bound == "above" else -step)
            if bound in ("smallest", "largest"):
                assert not refusal(kind, **others, **{item.name: has[bound]})
            else:
                assert not refusal(kind, **others, **{item.name: has[bound] + right})
            for bad in (has[bound] + wrong[bound], math.nan, math.inf):
                said = refusal(kind, **others, **{item.name: bad})
                assert said == f"{option} must be {limits_of(item.metadata)}, got {bad}."
        for other, values in has.get("goes_with", {}).items():
            outside = [None] if None not in values else []
            outside += [each for each in choices_of(items[other], hints[other]) if values and each not in values][:1]
            for without in outside or [items[other].default]:
                said = refusal(kind, **{**others, item.name: known, other: without})
                assert said.startswith(f"{option} goes with {flag(items[other])}"), said
                assert said.endswith(f"leave {option} out.") and all(each in said for each in values if each), said
        for other in has.get("excludes", ()):
            both = {item.name: known, other: value_within(items[other], hints[other])}
            said = refusal(kind, **{**others, **company(kind, items[other]), **both})
            assert said == f"{option} and {flag(items[other])} exclude each other: leave one of them out."


@pytest.mark.parametrize("name", CLASSES)
def test_the_help_is_short_and_shows_limits_and_default(name):
    kind = CLASSES[name]
    for item in options_of(kind).values():
        text, shown = item.metadata["help"], item.metadata.get("default_text", item.default)
        names = ", ".join(item.metadata.get("choices") or ())
        assert len(text.replace(names, "")) <= LONGEST_HELP, f"{flag(item)}: {len(text)} characters"
        assert limits_of(item.metadata) in text
        if isinstance(shown, int | float) and not isinstance(shown, bool):
            assert text.endswith(f"default: {shown})"), text
    if not issubclass(kind, FairseqDataclass):
        parser = argparse.ArgumentParser(formatter_class=lambda prog: argparse.HelpFormatter(prog, width=10_000))
        add_options(parser, kind)
        shown = parser.format_help()
        assert all(item.metadata["help"] in shown for item in options_of(kind).values())


def wrong_values(kind):
    """For each option with choices or limits, a value that it must not have."""
    hints = typing.get_type_hints(kind)
    for item in options_of(kind).values():
        if choices_of(item, hints[item.name]):
            yield item, "nonsense"
        elif limits_of(item.metadata):
            yield item, math.nan


OURS = [name for name, kind in CLASSES.items() if not issubclass(kind, FairseqDataclass) and any(wrong_values(kind))]


@pytest.mark.parametrize("name", OURS)
def test_settings_of_ours_are_checked_when_they_are_made_or_a_job_is_submitted(name):
    kind = CLASSES[name]
    hints = typing.get_type_hints(kind)
    given = {
        item.name: Path("x")
        if value_within(item, hints[item.name]) == "given"
        else value_within(item, hints[item.name])
        for item in dataclasses.fields(kind)
        if item.default is REQUIRED and item.default_factory is REQUIRED
    }
    for item, wrong in wrong_values(kind):
        with pytest.raises(ValueError, match=f"{flag(item)} must be |There is no fine-tuning task 'nonsense'"):
            made = kind(**{**given, item.name: wrong})
            if isinstance(made, Resources):
                check_resources(made)


REGISTERED = {
    f"{kind} {name}": chosen
    for kind, registry in {
        "task": TASK_REGISTRY,
        "model": MODEL_REGISTRY,
        "criterion": CRITERION_REGISTRY,
        "optimizer": OPTIMIZER_REGISTRY,
    }.items()
    for name, chosen in registry.items()
    if chosen.__module__.startswith("roberta_plugin.") and getattr(chosen, "__dataclass", None) in CLASSES.values()
}


@pytest.mark.parametrize("name", REGISTERED)
def test_options_of_fairseq_are_checked_by_the_class_they_are_registered_with(name):
    kind = getattr(REGISTERED[name], "__dataclass")
    for item, wrong in wrong_values(kind):
        with pytest.raises(ValueError, match=f"{flag(item)} must be "):
            REGISTERED[name].check_options(Namespace(**{**vars(kind()), item.name: wrong}))
