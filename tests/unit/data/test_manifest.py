import hashlib
import json

import pytest

from roberta_plugin.data.manifest import file_record, read_manifest, sha256_of_files, write_manifest
from roberta_plugin.json_files import sha256_of_json


def test_round_trip_and_absence(tmp_path):
    assert read_manifest(tmp_path) is None
    common = {"tokenizer": {"kind": "x"}, "dict_sha256": "\u00e9"}
    split = {"inputs": [], "outputs": {}, "rules": {}, "counts": {}}
    written = write_manifest(tmp_path, common, {"valid": split, "train": split})
    assert read_manifest(tmp_path) == written
    assert list(written["splits"]) == ["train", "valid"]


SPLIT = {"inputs": [], "outputs": {}, "rules": {}, "counts": {}}
GOOD = {"format": 2, "tokenizer": {"kind": "x"}, "dict_sha256": ""}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        json.dumps({**GOOD, "splits": 3}),
        json.dumps({**GOOD, "splits": {"train": {}}}),
        json.dumps({**GOOD, "splits": {"train": {**SPLIT, "outputs": ["train.bin"]}}}),
        json.dumps({**GOOD, "splits": {"train": {**SPLIT, "outputs": {"train.bin": {"bytes": "9"}}}}}),
        json.dumps({**GOOD, "splits": {"train": {**SPLIT, "inputs": [{"bytes": 9, "sha256": ""}]}}}),
        json.dumps({"format": 2, "splits": {}}),
        json.dumps({**GOOD, "format": 1, "splits": {}}),
        json.dumps({**GOOD, "format": 9, "splits": {}}),
    ],
)
def test_a_damaged_or_foreign_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json (is damaged|has format)"):
        read_manifest(tmp_path)


def test_hashes_of_many_files_are_in_their_order(tmp_path):
    paths = [tmp_path / f"{number}" for number in range(9)]
    for path in paths:
        path.write_text(path.name)
    assert sha256_of_files(paths, workers=3) == [hashlib.sha256(path.name.encode()).hexdigest() for path in paths]


def test_file_record_and_hash_of_plain_values(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert file_record(tmp_path / "f") == {"bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert (
        sha256_of_json({"a": 1, "b": [2]}) == sha256_of_json({"b": [2], "a": 1}) != sha256_of_json({"a": 2, "b": [2]})
    )


def test_a_manifest_with_the_hash_of_an_earlier_version_is_read(tmp_path):
    write_manifest(tmp_path, {"tokenizer": {"kind": "x"}, "dict_sha256": "", "num_symbols": 9, "sha256": "0"}, {})
    assert read_manifest(tmp_path)["num_symbols"] == 9
