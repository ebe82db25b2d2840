import hashlib

import pytest

from roberta_plugin.data.manifest import file_record, read_manifest, sha256_of_json, write_manifest


def test_round_trip_and_absence(tmp_path):
    assert read_manifest(tmp_path) is None
    written = write_manifest(tmp_path, {"tokenizer": {"kind": "x"}}, {"valid": {"a": 1}, "train": {"b": "\u00e9"}})
    assert read_manifest(tmp_path) == written
    assert list(written["splits"]) == ["train", "valid"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": 1, "splits": 3}', '{"format": 9, "splits": {}}'])
def test_a_damaged_or_foreign_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json (is damaged|has the format)"):
        read_manifest(tmp_path)


def test_file_record_and_hash_of_plain_values(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert file_record(tmp_path / "f") == {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert (
        sha256_of_json({"a": 1, "b": [2]}) == sha256_of_json({"b": [2], "a": 1}) != sha256_of_json({"a": 2, "b": [2]})
    )
