"""Names of modules that were parted are imported from their former places, with a warning."""

import importlib

import pytest

from roberta_plugin.moved import IN_TRUNK

NAMES = {
    "conversion.formats": ("Addition",),
    "conversion.huggingface_model": ("TRUNK", "from_hugging_face", "to_hugging_face", "with_base_prefix"),
    "data.text_inputs_files": ("BadLineError", "LONGEST_LINE", "read_lines"),
    "data.text_inputs_tables": ("num_rows_before", "read_rows", "schema_metadata"),
    "models.checkpoints": ("POSITIONS", "check_sizes", "merge_segments", "sequence_head_of"),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in IN_TRUNK for name in NAMES[module]])
def test_a_name_is_found_where_it_was(module, name):
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} is .*its former name goes with the next version"):
        found = getattr(importlib.import_module(f"roberta_plugin.{module}"), name)
    now = [importlib.import_module(f"roberta_plugin.{place}") for place in IN_TRUNK[module]]
    assert any(found is getattr(each, name, None) for each in now)


@pytest.mark.parametrize("module", IN_TRUNK)
def test_other_names_are_missing(module):
    with pytest.raises(AttributeError, match="has no nothing"):
        _ = importlib.import_module(f"roberta_plugin.{module}").nothing
