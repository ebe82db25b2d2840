import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.cli.text import Splits, files_by_split, summary
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.settings import from_arguments


def splits(*words):
    args = build_parser("binarize").parse_args(["binarize", "--tokenizer", "t", "--output-dir", "d", *words])
    return files_by_split(from_arguments(Splits, vars(args)))


def test_splits_come_from_their_options():
    found = splits("--train", "a", "b", "--valid", "c", "--train", "d", "--split", "extra", "e", "f")
    assert found == {"train": ["a", "b", "d"], "valid": ["c"], "extra": ["e", "f"]}


@pytest.mark.parametrize(
    "words", [[], ["--split", "name"], ["--train", "a", "--split", "train", "b"], ["--train", "-", "--valid", "-"]]
)
def test_splits_that_make_no_sense(words):
    with pytest.raises(ValueError, match=r"--split|Nothing to binarize|can be read only once"):
        splits(*words)


def test_summary_tells_what_was_left_out():
    counts = {"text_bytes": 2_000_000, "items": 10, "blank_lines": 2, "tokens": 1010, "unknown": 5, "bad_lines": 3}
    text = summary("train", counts, 2.0)
    for part in ("1,010 tokens", "10 lines (2 blank)", "0.500% unknown", "3 bad lines left out", "2.0 MB"):
        assert part in text
    assert "bad" not in summary("train", {**counts, "bad_lines": 0}, 2.0)


@pytest.fixture
def tokenizer_folder(tmp_path):
    """Byte-level BPE without merges, and no dict.txt."""
    (tmp_path / "bpe").mkdir()
    ByteLevelBpe(BYTE_CHARACTERS, []).save(tmp_path / "bpe")
    return tmp_path / "bpe"


def binarize(tmp_path, tokenizer_folder, *words):
    where = ["--tokenizer", str(tokenizer_folder), "--output-dir", str(tmp_path / "data"), "--workers", "1"]
    return main(["binarize", *where, *map(str, words)])


def test_without_dict_one_is_made_of_the_training_text_and_serves_later_splits(tmp_path, tokenizer_folder, capsys):
    (tmp_path / "a.txt").write_text("bbbb aa c\n")
    (tmp_path / "b.txt").write_text("abcd\n")
    assert binarize(tmp_path, tokenizer_folder, "--valid", tmp_path / "b.txt") == 2
    assert "give --train to make one" in capsys.readouterr().err
    assert binarize(tmp_path, tokenizer_folder, "--train", tmp_path / "a.txt") == 0
    ids = {character: BYTE_CHARACTERS.index(character) for character in "abc"}
    space = BYTE_CHARACTERS.index("\u0120")
    rows = [f"{ids['b']} 4", f"{space} 2", f"{ids['a']} 2", f"{ids['c']} 1"]
    assert (tmp_path / "data" / "dict.txt").read_text().splitlines() == rows
    assert binarize(tmp_path, tokenizer_folder, "--valid", tmp_path / "b.txt") == 0
    captured = capsys.readouterr()
    assert "25.000% unknown" in captured.out
    assert "WARNING: valid: 25.0% of its tokens are unknown" in captured.err


def test_options_of_the_dictionary(tmp_path, tokenizer_folder, capsys):
    (tmp_path / "a.txt").write_text("bbbb aa c\n")
    words = ["--train", tmp_path / "a.txt", "--threshold", "2", "--padding-factor", "1"]
    assert binarize(tmp_path, tokenizer_folder, *words) == 0
    assert len((tmp_path / "data" / "dict.txt").read_text().splitlines()) == 3
    assert binarize(tmp_path, tokenizer_folder, *words) == 0
    assert binarize(tmp_path, tokenizer_folder, *words, "--nwords", "5", "--overwrite") == 2
    assert "another vocabulary" in capsys.readouterr().err
    assert binarize(tmp_path, tokenizer_folder, *words, "--dict", tmp_path / "data" / "dict.txt") == 2
    assert "give only one of" in capsys.readouterr().err


def test_what_is_suspicious_is_a_warning(tmp_path, tokenizer_folder, capsys):
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(f"a document {number}\n")
    (tmp_path / "copy.txt").write_bytes((tmp_path / "1.txt").read_bytes())
    (tmp_path / "blank.txt").write_text("\n\n")
    (tmp_path / "records.jsonl").write_text('{"text": "document", "image": "%s"}\n' % ("A" * 200_000))
    texts = ["--train", tmp_path / "0.txt", tmp_path / "1.txt"]
    splits = ["--valid", tmp_path / "copy.txt", "--test", tmp_path / "blank.txt"]
    assert binarize(tmp_path, tokenizer_folder, *texts, *splits, "--split", "more", tmp_path / "records.jsonl") == 0
    warnings = capsys.readouterr().err
    assert "WARNING: train: its 2 files have no blank line" in warnings
    assert "--blank-line-after-files" in warnings
    assert (
        f"WARNING: valid: {tmp_path / 'copy.txt'} has the same content as {tmp_path / '1.txt'} of the split train"
        in warnings
    )
    assert "WARNING: test: it has no text" in warnings
    assert "WARNING: more: 0.2 MB of input gave only 10 tokens" in warnings
    assert binarize(tmp_path, tokenizer_folder, *texts, "--blank-line-after-files", "--overwrite") == 0
    assert "blank" not in capsys.readouterr().err


def test_data_bins_do_not_go_among_the_texts_of_corpora(tmp_path, tokenizer_folder, capsys):
    (tmp_path / "texts" / "en").mkdir(parents=True)
    (tmp_path / "texts" / "en" / "train.txt").write_text("a line\n")
    command = ["binarize", "--tokenizer", str(tokenizer_folder), "--corpora", str(tmp_path / "texts"), "--output-dir"]
    assert main([*command, str(tmp_path / "texts" / "bin")]) == 2
    assert "lies in --corpora" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "data bin")]) == 0
    assert f"fairseq-train '{tmp_path}/data bin/en' --corpus-alpha" in capsys.readouterr().out
