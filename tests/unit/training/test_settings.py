"""Texts become typed settings; the fields' types are those of recipes."""

import dataclasses
from pathlib import Path

import pytest

from roberta_plugin.training.settings import convert, parse_pairs, setting


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
