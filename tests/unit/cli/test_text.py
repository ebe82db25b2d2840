"""`roberta tokenizer` and `roberta binarize`: what they write, print and refuse."""

import json
import os
import signal

import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.cli.text import Splits, files_by_split, summary
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.settings import from_arguments
from tests.needed_extensions import with_kinds_of_extensions


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat, and the other cats sat there\n" * 50)
    return path


def train(text_file, folder, *options):
    argv = ["tokenizer", "train", "--input", str(text_file), "--output-dir", str(folder), "--vocab-size", "300"]
    return main([*argv, *options])


def test_train_then_show(text_file, tmp_path, capsys):
    assert train(text_file, tmp_path / "bpe") == 0
    assert (tmp_path / "bpe" / "dict.txt").exists()
    assert "byte_level_bpe" in capsys.readouterr().out
    assert main(["tokenizer", "show", str(tmp_path / "bpe"), "the cat"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("   ")[-1] for line in shown[1:-1]] == ["'the'", "' cat'"]
    assert shown[-1].startswith("1.00 tokens per word, 3.50 bytes per token, 100.0% of the words are one token")
    assert main(["tokenizer", "show", str(tmp_path / "bpe"), "\u00e9 \u65e5"]) == 0
    shown = [line.split("   ")[-1] for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert shown == [r"'\xc3'", r"'\xa9'", "' '", r"'\xe6'", r"'\x97'", r"'\xa5'"]


def test_a_tokenizer_is_not_replaced_by_accident(text_file, tmp_path, capsys):
    assert train(text_file, tmp_path / "bpe") == 0
    before = (tmp_path / "bpe" / "dict.txt").read_bytes()
    text_file.write_text("something else entirely\n" * 50)
    assert train(text_file, tmp_path / "bpe") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "bpe" / "dict.txt").read_bytes() == before
    assert train(text_file, tmp_path / "bpe", "--overwrite") == 0
    assert (tmp_path / "bpe" / "dict.txt").read_bytes() != before
    (tmp_path / "bpe" / "dict.txt").unlink()
    assert train(text_file, tmp_path / "bpe", "--kind", "sentencepiece", "--vocab-size", "35") == 2
    assert "already holds encoder.json" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "is_earlier"), [("byte_level_bpe", True), ("sentencepiece", False)])
def test_a_killed_training_does_not_stand_in_the_way_of_the_next(
    text_file, tmp_path, kind, is_earlier, monkeypatch, capsys
):
    """Killed after any of its renames: of the files in the hidden folder, and from there to their places."""
    options = ["--kind", kind, "--vocab-size", "300" if kind == "byte_level_bpe" else "24", "--no-progress"]
    assert train(text_file, tmp_path / "whole", *options) == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    real = os.replace
    for at in range(1, 2 * len(whole)):
        renamed = []

        def replace(*paths, at=at, renamed=renamed):
            real(*paths)
            renamed.append(paths)
            if len(renamed) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        folder = tmp_path / str(at)
        overwrite = ["--overwrite"] if is_earlier else []
        if is_earlier:
            other = tmp_path / "other.txt"
            other.write_text("something else entirely\n" * 50)
            assert train(other, folder, "--no-progress") == 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            assert train(text_file, folder, *options, *overwrite) == 2
        if (folder / "dict.txt").exists():
            assert is_earlier and at <= len(whole), "a mixture of two tokenizers"
        assert train(text_file, folder, *options, *overwrite) == 0
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
    assert "already holds" not in capsys.readouterr().err


def test_options_reach_the_trainer_and_fewer_tokens_than_asked_for_are_a_warning(text_file, tmp_path, capsys):
    assert train(text_file, tmp_path / "most", "--vocab-size", "30000") == 0
    assert "tokens, --vocab-size asks for 30,000" in capsys.readouterr().err
    assert train(text_file, tmp_path / "few", "--vocab-size", "260") == 0
    assert "WARNING" not in capsys.readouterr().err
    records = tmp_path / "c4.json"
    records.write_text('{"content": "the cat"}\n' * 3 + "{}\n")
    options = ["--json-field", "content", "--skip-bad-lines", "--min-frequency", "4", "--sample-megabytes", "1"]
    assert train(records, tmp_path / "bpe", *options) == 0
    assert "byte_level_bpe of 256 tokens" in capsys.readouterr().out  # no pair occurs four times
    (tmp_path / "empty.txt").write_text("")
    assert train(tmp_path / "empty.txt", tmp_path / "none") == 2
    assert "no text to train a tokenizer on" in capsys.readouterr().err


@pytest.mark.parametrize("kind", with_kinds_of_extensions({"byte_level_bpe": 300, "sentencepiece": 35}, 35))
def test_every_kind_can_be_trained_shown_binarized_and_inspected(text_file, tmp_path, capsys, kind):
    size = "300" if kind == "byte_level_bpe" else "35"
    assert train(text_file, tmp_path / kind, "--kind", kind, "--vocab-size", size) == 0
    assert kind in capsys.readouterr().out
    assert main(["tokenizer", "show", str(tmp_path / kind), "the cat"]) == 0
    data = ["--train", str(text_file), "--tokenizer", str(tmp_path / kind), "--output-dir", str(tmp_path / "data")]
    assert main(["binarize", *data, "--no-progress", "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert f", {kind}" in shown
    assert "0 unknown" in shown


def splits(*words):
    args = build_parser("binarize").parse_args(["binarize", "--tokenizer", "t", "--output-dir", "d", *words])
    return files_by_split(from_arguments(Splits, vars(args)))


def test_splits_come_from_their_options():
    found = splits("--train", "a", "b", "--valid", "c", "--train", "d", "--split", "extra", "e", "f")
    assert found == {"train": ["a", "b", "d"], "valid": ["c"], "extra": ["e", "f"]}
    for words in ("", "--split name", "--train a --split train b", "--train - --valid -"):
        with pytest.raises(ValueError, match=r"--split|Nothing to binarize|can be read only once"):
            splits(*words.split())


def test_summary_tells_what_was_left_out():
    counts = {"text_bytes": 2_000_000, "items": 10, "blank_lines": 2, "tokens": 1010, "unknown": 5, "bad_lines": 3}
    text = summary("train", counts, 2.0)
    for part in ("1,010 tokens", "10 lines (2 blank)", "0.500% unknown", "3 bad lines skipped", "2.0 MB"):
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
    (tmp_path / "a.txt").write_text("bbbb aa c\nzxyvw\n")
    assert binarize(tmp_path / "all", tokenizer_folder, "--train", tmp_path / "a.txt") == 0
    rows = [row.split() for row in (tmp_path / "all" / "data" / "dict.txt").read_text().splitlines()]
    symbols = [symbol for symbol, count in rows if count == "1"]
    assert len(symbols) > 5 and symbols == sorted(symbols), "those of one count by their names, as fairseq"
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
    (tmp_path / "records.jsonl").write_text('{"text": "document", "image": "%s"}\n' % ("A" * 200_000))
    texts = ["--train", tmp_path / "0.txt", tmp_path / "1.txt"]
    splits = ["--valid", tmp_path / "copy.txt"]
    assert binarize(tmp_path, tokenizer_folder, *texts, *splits, "--split", "more", tmp_path / "records.jsonl") == 0
    warnings = capsys.readouterr().err
    assert "WARNING: train: its 2 files have no blank line" in warnings
    assert "--blank-line-after-files" in warnings
    assert (
        f"WARNING: valid: {tmp_path}/copy.txt has the same content as {tmp_path}/1.txt of the split train" in warnings
    )
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


def test_a_column_of_parquet_and_its_json_lines_give_the_same_tokenizer(text_file, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [*text_file.read_text().split("\n\n"), "the cat sat"] * 20
    parquet.write_table(pytest.importorskip("pyarrow").table({"body": texts}), tmp_path / "a.parquet", row_group_size=7)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    for name in ("parquet", "jsonl"):
        assert train(tmp_path / f"a.{name}", tmp_path / name, "--text-column", "body", "--vocab-size", "290") == 0
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        assert (tmp_path / "parquet" / name).read_bytes() == (tmp_path / "jsonl" / name).read_bytes()
    assert train(tmp_path / "a.parquet", tmp_path / "none") == 2
    assert "there is no column 'text'; there are 'body'. Name one of them by --text-column" in capsys.readouterr().err
