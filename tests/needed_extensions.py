"""Tests of the trunk that also go through an extension: skipped where it is deleted (`tests/unit/test_deletion.py`)."""

import pytest

from roberta_plugin import registry
from tests.ledger import SOURCES


def needs(name):
    """The mark of a test that needs an extension."""
    registry.find_extensions()
    return pytest.mark.skipif(name not in registry.extensions, reason=f"needs the extension {name}")


def with_kinds_of_extensions(options, others):
    """Options by kind of tokenizer, and `others` for each kind that an extension brings."""
    kinds = registry.TOKENIZERS
    return {**options, **{kind: others for kind in kinds if kinds.owner(kind).name in registry.extensions}}


def describes_all():
    """The mark of a test of a document that describes all extensions, and links to their folders."""
    missing = sorted(SOURCES.keys() - registry.all_extensions().keys())
    return pytest.mark.skipif(bool(missing), reason=f"the document describes {', '.join(missing)}, too")
