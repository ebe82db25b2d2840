"""Many files, and files of any name."""

import os

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data import text_inputs_files
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.tiny_tokenizers import byte_level_bpe


def test_many_files_are_counted_aloud_and_looked_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(text_inputs_files, "_MANY", 3)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("A line of text.\n")
    first = find_inputs([f"{tmp_path}/*.txt"])
    assert "files of text: 100%" in capsys.readouterr().err
    monkeypatch.setattr(text_inputs_files, "_first_look_at", None)
    assert find_inputs([f"{tmp_path}/*.txt"]) == first and not capsys.readouterr().err
    monkeypatch.undo()
    (tmp_path / "3.txt").rename(tmp_path / "3.jsonl")
    (tmp_path / "2.txt").write_bytes(b"PK\x03\x04")
    (tmp_path / "1.txt").unlink()
    (tmp_path / "1.txt").symlink_to("0.txt")
    for names, message in ((["2.txt"], "a zip archive"), (["0.txt", "1.txt"], "is given twice")):
        with pytest.raises(ValueError, match=message):
            find_inputs([str(tmp_path / name) for name in names])


def test_a_name_that_is_not_utf_8_is_binarized_and_found_again(tmp_path):
    tokenizer = byte_level_bpe()
    (tmp_path / "tok").mkdir()
    tokenizer.save(tmp_path / "tok")
    Vocabulary([Row(symbol, 1) for symbol in tokenizer.symbols]).save(tmp_path / "tok" / "dict.txt")
    text = os.path.join(os.fsencode(tmp_path), b"text\xff.txt")
    with open(text, "wb") as file:
        file.write(b"A line of text.\n")
    words = ["--tokenizer", str(tmp_path / "tok"), "--output-dir", str(tmp_path / "bin"), "--no-progress"]
    for _ in range(2):
        assert main(["binarize", "--train", os.fsdecode(text), *words]) == 0
    assert b"text\\udcff.txt" in (tmp_path / "bin" / "manifest.json").read_bytes()
