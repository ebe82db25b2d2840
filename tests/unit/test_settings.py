"""Texts become typed settings; the fields' types are those of recipes."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest

from roberta_plugin.settings import REQUIRED, Checked, add_options, convert, from_arguments, parse_pairs, setting


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
    with pytest.raises(ValueError, match=message):
        convert(Example, values, where="f")


def test_pairs():
    assert parse_pairs(["mem-gb=4", "sbatch.mail-type=a=b"], option="--slurm") == {
        "mem_gb": "4",
        "sbatch.mail-type": "a=b",
    }
    for texts, message in ((["time"], "'time' must have the form NAME=VALUE"), (["a=1", "a=2"], "gives a twice")):
        with pytest.raises(ValueError, match=message):
            parse_pairs(texts, option="--slurm")


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
        with pytest.raises(ValueError, match=f"^{message}"):
            read(*needed, *more)
    for words in (["a"], ["a", "--output-dir", "b", "--keep", "none"], ["a", "--output-dir", "b", "--inner", "4"]):
        with pytest.raises(SystemExit):
            read(*words)


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
        with pytest.raises(ValueError, match=f"^{message}"):
            Limited(**values)
    parser = argparse.ArgumentParser()
    add_options(parser, Limited)
    assert (
        "(2 or more; default: 128 512)" in parser.format_help()
        and "and at most 1; default: measured)" in parser.format_help()
    )
    found = from_arguments(Limited, vars(parser.parse_args(["--files", "a", "b", "--files", "c"])))
    assert found == Limited(files=("a", "b", "c"))
