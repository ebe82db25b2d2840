"""Texts become typed settings; what a field declares is checked, for every option of ours and of fairseq's classes."""

import argparse
import dataclasses
import importlib
import math
import pkgutil
import typing
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass import FairseqDataclass
from fairseq.models import MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.tasks import TASK_REGISTRY

import roberta_plugin
from roberta_plugin.finetuning.benchmarks import all_tasks, options_class
from roberta_plugin.launch.resources import Resources, check_resources
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.settings import (
    REQUIRED,
    Checked,
    add_options,
    check_values,
    choices_of,
    convert,
    flag,
    from_arguments,
    limits_of,
    parse_pairs,
    setting,
    short,
)
from tests.refusals import refused


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    path: Path | None = setting(None, "a file")
    count: int = setting(1, "how many")
    share: float = setting(0.5, "how much")
    is_on: bool = setting(False, "whether")
    names: tuple[str, ...] = setting((), "which")


def test_every_type_is_read_and_nulls_leave_the_default():
    values = {"path": "a/b", "count": "3", "share": "1e-2", "is_on": "true", "names": {"A": "1", "B": "x y"}}
    assert convert(Example, values, where="f") == Example(
        path=Path("a/b"), count=3, share=0.01, is_on=True, names=("A=1", "B=x y")
    )
    assert convert(Example, {"count": "null", "names": "", "path": None}, where="f") == Example()
    assert convert(Example, {"names": ["a", "b"]}, where="f").names == ("a", "b")
    assert convert(Example, {"names": "a"}, where="f").names == ("a",)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "two"}, "f: --count is 'two', which is not a whole number"),
        ({"share": "half"}, "f: --share is 'half', which is not a number"),
        ({"share": "nan"}, "f: --share is 'nan', which is not a finite number"),
        ({"names": {"A": ["1"]}}, r"each value of names \(--names\) must be one text, got {'A': \['1'\]}"),
        ({"names": [{"A": "1"}]}, r"each value of names \(--names\) must be one text"),
        ({"count": ["1"]}, r"count \(--count\) must be one value"),
        ({"is_on": "yes"}, r"is_on \(--is-on\) must be true or false"),
        ({"counts": "null"}, "f has the unknown key 'counts'"),
        ({"counts": "1"}, "f has the unknown key 'counts' .*: use count, is_on"),
    ],
)
def test_what_is_refused_names_the_option(values, message):
    refused(message, convert, Example, values, where="f")


def test_pairs():
    found = parse_pairs(["mem-gb=4", "sbatch.mail-type=a=b"], option="--slurm")
    assert found == {"mem_gb": "4", "sbatch.mail-type": "a=b"}
    for texts, message in ((["time"], "'time' must have the form NAME=VALUE"), (["a=1", "a=2"], "gives a twice")):
        refused(message, parse_pairs, texts, option="--slurm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Checked):
    source: Path = setting(REQUIRED, "what to read", flag="source")
    output_dir: Path = setting(REQUIRED, "where to write")
    share: float | None = setting(None, "how much", smallest=0, largest=1)
    keep: Literal["all", "best"] = setting("all", "which")
    sizes: Sequence[int] = setting((), "which", flag="--size", nargs="+")
    only: Mapping[str, str] = setting(dict, "what", metavar="NAME=VALUE")
    column: str | None = setting(None, "which")
    is_on: bool = setting(False, "whether")
    shows: bool = setting(False, "no show", flag="--no-show", action="store_false")
    split: tuple[tuple[str, ...], ...] = setting((), "names and files", nargs="+", action="append")
    slurm: dict[str, str] | None = setting(None, "resources", nargs="*", read=lambda texts: {"a": " ".join(texts)})
    inner: int = 3


def read(*words):
    parser = argparse.ArgumentParser()
    add_options(parser, Command)
    return from_arguments(Command, vars(parser.parse_args(words)))


def test_a_dataclass_becomes_options_and_the_options_become_the_dataclass():
    needed = ("a/b", "--output-dir", "out")
    assert read(*needed) == Command(source=Path("a/b"), output_dir=Path("out"), shows=True)
    assert not read(*needed, "--no-show").shows
    words = "--share 0.5 --keep best --size 1 2 --only a-b=1 --only c=2=3 --column null --is-on"
    words += " --split x a b --split y c --slurm 1 2"
    assert read(*needed, *words.split()) == Command(
        source=Path("a/b"),
        output_dir=Path("out"),
        share=0.5,
        keep="best",
        sizes=(1, 2),
        only={"a_b": "1", "c": "2=3"},
        column="null",  # a null in YAML, a name on a command line
        is_on=True,
        shows=True,
        split=(("x", "a", "b"), ("y", "c")),
        slurm={"a": "1 2"},
    )
    for more, message in (
        (["--share", "2"], "--share must be from 0 to 1, got 2"),
        (["--share", "x"], "--share is 'x', which is not a number"),
        (["--size", "1", "b"], "--size is 'b', which is not a whole number"),
        (["--only", "a"], "--only 'a' must have the form"),
    ):
        refused(f"^{message}", read, *needed, *more)
    for words in (["a"], ["a", "--output-dir", "b", "--keep", "none"], ["a", "--output-dir", "b", "--inner", "4"]):
        refused("2", read, *words, error=SystemExit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limited(Checked):
    lengths: tuple[int, ...] = setting((128, 512), "lengths", nargs="+", smallest=2)
    rate: float | None = setting(None, "rate", above=0, largest=1, default_text="measured")
    files: tuple[str, ...] = setting((), "files", nargs="+", action="extend")


def test_limits_apply_to_each_value_and_the_help_shows_defaults():
    assert Limited(rate=1.0).rate == 1.0
    for values, message in (
        ({"lengths": (5, 1)}, "--lengths must be 2 or more, got 1"),
        ({"rate": 0.0}, "--rate must be greater than 0 and at most 1, got 0.0"),
        ({"rate": float("nan")}, "--rate must be greater than 0"),
    ):
        refused(f"^{message}", Limited, **values)
    parser = argparse.ArgumentParser()
    add_options(parser, Limited)
    shown = parser.format_help()
    assert "(2 or more; default: 128 512)" in shown and "and at most 1; default: measured)" in shown
    found = from_arguments(Limited, vars(parser.parse_args(["--files", "a", "b", "--files", "c"])))
    assert found == Limited(files=("a", "b", "c"))


LONGEST_HELP = 200


def settings_classes():
    """All dataclasses of the package that have an option."""
    found = {}
    for module in pkgutil.walk_packages(roberta_plugin.__path__, "roberta_plugin."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            is_ours = isinstance(value, type) and value.__module__.startswith("roberta_plugin.")
            if is_ours and dataclasses.is_dataclass(value) and options_of(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    classes = (PredictSettings, *map(options_class, all_tasks()))
    composed = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in classes if options_of(kind)}
    return {name: kind for name, kind in found.items() if not is_slice(kind)} | composed


def is_slice(kind):
    """Whether a dataclass is checked only as a part of another one, whose options its own go with."""
    items = options_of(kind)
    others = {
        name for item in items.values() for rule in ("goes_with", "excludes") for name in item.metadata.get(rule, ())
    }
    return not others <= items.keys()


def options_of(kind):
    return {item.name: item for item in dataclasses.fields(kind) if "help" in item.metadata}


CLASSES = settings_classes()


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
        values = values() if callable(values) else values
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
            inside = has[bound] if bound in ("smallest", "largest") else has[bound] + right
            assert not refusal(kind, **others, **{item.name: inside})
            for bad in (has[bound] + wrong[bound], math.nan, math.inf):
                said = refusal(kind, **others, **{item.name: bad})
                assert said == f"{option} must be {limits_of(item.metadata)}, got {bad}."
        for other, values in has.get("goes_with", {}).items():
            values = values() if callable(values) else values
            outside = [None] if None not in values else []
            outside += [each for each in choices_of(items[other], hints[other]) if values and each not in values][:1]
            default = items[other].default
            for without in outside or ([] if values and default in values else [default]):
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
        choices = item.metadata.get("choices") or ()
        names = ", ".join(choices() if callable(choices) else choices)
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
    kind, given = CLASSES[name], {}
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        if item.default is REQUIRED and item.default_factory is REQUIRED:
            value = value_within(item, hints[item.name])
            given[item.name] = Path("x") if value == "given" else value

    def made(**values):
        settings = kind(**values)
        if isinstance(settings, Resources):
            check_resources(settings)

    for item, wrong in wrong_values(kind):
        message = f"{flag(item)} must be |There is no fine-tuning task 'nonsense'"
        refused(message, made, **{**given, item.name: wrong})


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
        options = Namespace(**{**vars(kind()), item.name: wrong})
        refused(f"{flag(item)} must be ", REGISTERED[name].check_options, options)


def test_a_value_is_shown_as_python_writes_it_and_no_more_of_it_is_made_than_is_shown():
    for value in (None, 1.5, True, "it's", ["a", {"b": [1]}], (1,), (), {}, {"a": "b"}, b"x"):
        assert short(value) == repr(value)
    assert short("a" * 100) == f"'{'a' * 56}..." and len(short(list(range(1000)))) == 60
    nested = ["leaf"]
    for _ in range(200):
        nested = [nested] * 9
    assert short(nested).startswith("[[[") and len(short(nested)) == 60
    nested.append(nested)
    assert short([nested]).startswith("[[[")
    assert short(10**5000).endswith("digits")
