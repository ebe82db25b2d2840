"""Damaged JSON files are named, with what to do."""

import json
import math
from collections.abc import Mapping

import pytest

from roberta_plugin.json_files import read_json, write_json


def test_a_good_file_and_a_missing_one(tmp_path):
    (tmp_path / "a.json").write_text('{"b": 1, "c": 2}')
    assert read_json(tmp_path / "a.json", keys=["b"], remedy="x") == {"b": 1, "c": 2}
    assert read_json(tmp_path / "none.json", keys=["b"], remedy="x") is None


def test_numbers_that_json_lacks_are_written_as_null(tmp_path):
    write_json(tmp_path / "a.json", {"b": [math.nan, 1.0, {"c": -math.inf}], "d": (math.inf,)})
    assert "NaN" not in (tmp_path / "a.json").read_text()
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": [None, 1.0, {"c": None}], "d": [None]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"b": 1', "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[1]", r"holds \[1\] instead of an object"),
        (b"[" * 100_000, "is not valid JSON .it is nested too deeply"),
        (b"null", "holds None instead of an object"),
        (b'{"c": 2}', "lacks the key 'b'"),
        (b'{"b": 5}', r": 'b' is 5, which is not a list or null"),
        (b'{"b": null, "c": true}', r": 'c' is True, which is not a number"),
        (b'{"b": [], "c": 1, "d": []}', r": 'd' is \[\], which is not an object"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.json ?{message}.*: delete it\."):
        read_json(
            path,
            keys=["b"],
            remedy="delete it",
            hints={"b": tuple[str, ...] | None, "c": float, "d": Mapping[str, str]},
        )
