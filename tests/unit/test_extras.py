"""An optional package that is missing is named with the extra that brings it."""

import importlib.metadata
import re

import pytest

from roberta_plugin.extras import require
from tests.conftest import REPOSITORY


def test_a_missing_package_is_named_with_its_extra():
    require("numpy", extra="onnx", purpose="--to onnx")
    with pytest.raises(
        ValueError, match=r"--to onnx needs no_such_package, .*pip install no_such_package .*roberta_plugin\[onnx\]"
    ):
        require("numpy", "no_such_package", extra="onnx", purpose="--to onnx")


def test_every_extra_that_an_error_names_exists():
    named = set()
    for path in (REPOSITORY / "roberta_plugin").rglob("*.py"):
        named |= set(re.findall(r'require\([^)]*extra="([a-z-]+)"', path.read_text()))
    assert len(named) >= 5
    assert named <= set(importlib.metadata.metadata("roberta_plugin").get_all("Provides-Extra"))
