import shutil

import numpy as np
import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.binarize.pipeline import BinarizeSettings, binarize
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
        settings=BinarizeSettings(workers=1),
        progress=False,
    )
    return tmp_path / "data"


def test_shows_counts(data_bin, capsys):
    assert main(["inspect", str(data_bin)]) == 0
    shown = capsys.readouterr().out
    assert "train: sound" in shown
    assert "2 documents, 5 lines (2 blank)" in shown
    assert "2 unknown (7.6923%)" in shown


def test_counts_of_train_are_shown_for_the_other_splits(data_bin, capsys):
    for end in ("bin", "idx"):
        shutil.copy(data_bin / f"train.{end}", data_bin / f"dev.{end}")
    assert main(["inspect", str(data_bin)]) == 0
    train, dev = capsys.readouterr().out.split("\ndev: sound")
    assert "unigram baseline" in dev and "bigram baseline" in dev and "baseline" not in train
    assert (data_bin / "baselines-dev.json").is_file()
    assert main(["inspect", str(data_bin), "--split", "dev"]) == 0


def test_damage_is_exit_code_one(data_bin, capsys):
    content = np.fromfile(data_bin / "train.bin", dtype=np.uint16)
    content[0] = 9999
    content.tofile(data_bin / "train.bin")
    assert main(["inspect", str(data_bin)]) == 1
    shown = capsys.readouterr().out
    assert "NOT SOUND" in shown
    assert "9999" in shown


def test_a_folder_of_fairseq_has_no_hashes(data_bin, capsys):
    for name in ("manifest.json", "encoder.json", "vocab.bpe"):
        (data_bin / name).unlink()
    assert main(["inspect", str(data_bin)]) == 0
    shown = capsys.readouterr().out
    assert "no hashes to check" in shown


@pytest.mark.parametrize("names", [["train.idx"], ["train.bin"], ["train.idx", "train.bin"]])
def test_files_that_the_manifest_lists_and_the_folder_lacks_are_found(data_bin, names, capsys):
    for name in names:
        (data_bin / name).unlink()
    assert main(["inspect", str(data_bin)]) == 1
    shown = capsys.readouterr().out
    assert "train: NOT SOUND" in shown
    assert f"{names[0]} does not exist" in shown


@pytest.mark.parametrize("change", ["merge", "damage", "deletion", "second kind"])
def test_a_tokenizer_that_is_not_the_one_of_the_data_is_found(data_bin, change, capsys):
    if change == "merge":
        ByteLevelBpe([*BYTE_CHARACTERS, "th"], [("t", "h")]).save(data_bin)
    elif change == "damage":
        (data_bin / "vocab.bpe").write_bytes(b"")
    elif change == "deletion":
        (data_bin / "encoder.json").unlink()
    else:
        (data_bin / "character_bpe.json").write_text("{}")
    assert main(["inspect", str(data_bin)]) == 1
    shown = capsys.readouterr().out
    assert "fault: " in shown
    assert "train: sound" in shown


def test_a_split_that_the_manifest_does_not_list_is_named(data_bin, capsys):
    for suffix in ("bin", "idx"):
        (data_bin / f"valid.{suffix}").write_bytes((data_bin / f"train.{suffix}").read_bytes())
    assert main(["inspect", str(data_bin)]) == 0
    shown = capsys.readouterr().out.split("valid: sound")
    assert "not in manifest.json" in shown[1]
    assert "not in manifest.json" not in shown[0]


def test_user_errors_are_one_line(data_bin, capsys):
    for name in ("train.idx", "train.bin", "manifest.json"):
        (data_bin / name).unlink()
    assert main(["inspect", str(data_bin)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
