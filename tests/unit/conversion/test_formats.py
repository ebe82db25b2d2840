"""Formats of extensions: what a folder is, and what is said where the extension of its format is not installed."""

import json

import pytest

from roberta_plugin.conversion.formats import Format, instead
from roberta_plugin.conversion.model_files import format_of
from roberta_plugin.conversion.settings import CommonExportSettings
from roberta_plugin.registry import FORMATS, Extension, FormatEntry
from tests.refusals import refused
from tests.tiny_conversions import exported, write_checkpoint


class Toy(Format):
    program = "toys"

    def write(self, model, folder, settings):
        (folder / "toy.json").write_text("{}")
        return ["It is a toy."]

    def usage(self, model):
        return 'Open "FOLDER".'


@pytest.fixture(name="toy")
def registered_format(monkeypatch):
    """A format that an extension could bring, whose folders have the file toy.json."""
    FORMATS["huggingface"]  # all extensions are found
    entry = FormatEntry(
        "tests.unit.conversion.test_formats:Toy",
        marks=("toy.json", "graph.toy"),
        own_mark="toy.json",
        takes_any_layers=True,
    )
    monkeypatch.setitem(FORMATS._entries, "toy", entry)
    monkeypatch.setitem(FORMATS._owners, "toy", Extension("toy", __name__))
    return entry


def test_a_folder_has_the_format_of_its_marks_and_that_of_hugging_face_comes_first(toy, tmp_path):
    assert format_of(tmp_path) is None
    (tmp_path / "graph.toy").touch()
    assert format_of(tmp_path) == "toy"
    (tmp_path / "config.json").touch()
    assert format_of(tmp_path) == "huggingface"  # and somebody's graph beside it
    (tmp_path / "toy.json").touch()
    assert format_of(tmp_path) == "toy"  # which only our exports have


def test_an_export_to_a_format_that_is_not_installed_is_named(tmp_path):
    (tmp_path / "conversion.json").write_text(json.dumps({"to": "toy", "files": []}))
    (tmp_path / "config.json").touch()  # read as Hugging Face's, it might answer otherwise
    refused(
        r"is an export to toy\. There is no format of models 'toy'; there are huggingface, fairseq", format_of, tmp_path
    )
    message = r"--to must be huggingface or fairseq.*, got 'toy'"
    refused(message, CommonExportSettings, checkpoint=tmp_path, to="toy", output_dir=tmp_path)


def test_formats_of_any_layers_are_what_to_use_instead(toy):
    assert instead("huggingface").startswith("--to huggingface or ") and instead().endswith("toy")


def test_a_format_of_an_extension_writes_a_folder_with_a_card_and_notes(toy, tmp_path):
    done = exported(write_checkpoint(tmp_path / "ours"), tmp_path / "toy", "toy")
    assert done.notes == ("It is a toy.",) and format_of(done.folder) == "toy"
    card = (done.folder / "README.md").read_text()
    assert 'Open "FOLDER".' in card and "library_name: toy" in card
    record = json.loads((done.folder / "conversion.json").read_text())
    assert record["to"] == "toy" and record["notes"] == ["It is a toy."]
