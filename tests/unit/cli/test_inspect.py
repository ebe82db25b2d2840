import numpy as np
import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.binarize import binarize
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.vocabulary import Row, Vocabulary

LINES = ["first line", "", "second line", "third", ""]


@pytest.fixture
def data_bin(tmp_path):
    tokenizer = ByteLevelBpe(BYTE_CHARACTERS, [], use_fast_engine=False)
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    binarize(
        [tmp_path / "text.txt"],
        split="train",
        tokenizer=tokenizer,
        vocabulary=Vocabulary([Row(symbol, 1) for symbol in tokenizer.symbols if symbol != str(ord("d"))]),
        destination=tmp_path / "data",
        workers=1,
        progress=False,
    )
    return tmp_path / "data"


def test_shows_counts_blocks_and_lines(data_bin, capsys):
    assert main(["inspect", str(data_bin), "--tokens-per-sample", "8"]) == 0
    shown = capsys.readouterr().out
    assert "train: sound" in shown
    assert "2 documents, 5 lines (2 blank)" in shown
    assert "2 unknown (7.6923%)" in shown
    assert "line 1: first line" in shown
    assert "line 3: secon line" in shown  # its last letter is unknown
    for mode in ("none", "complete", "complete_doc", "eos"):
        assert f"  {mode} " in shown


def test_damage_is_exit_code_one(data_bin, capsys):
    content = np.fromfile(data_bin / "train.bin", dtype=np.uint16)
    content[0] = 9999
    content.tofile(data_bin / "train.bin")
    assert main(["inspect", str(data_bin)]) == 1
    shown = capsys.readouterr().out
    assert "NOT SOUND" in shown
    assert "9999" in shown


def test_a_folder_of_fairseq_has_no_hashes_and_no_tokenizer(data_bin, capsys):
    for name in ("manifest.json", "encoder.json", "vocab.bpe"):
        (data_bin / name).unlink()
    assert main(["inspect", str(data_bin)]) == 0
    shown = capsys.readouterr().out
    assert "no hashes to check" in shown
    assert "no samples" in shown


@pytest.mark.parametrize("words", [["--tokens-per-sample", "1"], []])
def test_user_errors_are_one_line(data_bin, words, capsys):
    if not words:
        (data_bin / "train.idx").unlink()
    assert main(["inspect", str(data_bin), *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
