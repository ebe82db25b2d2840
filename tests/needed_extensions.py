"""Tests of the trunk that also go through an extension: skipped where it is deleted (`tests/unit/test_deletion.py`)."""

import pytest

from roberta_plugin import registry


def needs(name):
    """The mark of a test that needs an extension."""
    registry.find_extensions()
    return pytest.mark.skipif(name not in registry.extensions, reason=f"needs the extension {name}")


def installed_kinds(options):
    """Of options by kind of tokenizer, those whose kind is there."""
    return {kind: value for kind, value in options.items() if kind in registry.TOKENIZERS}
