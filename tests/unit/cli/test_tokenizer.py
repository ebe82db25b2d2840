import json
import os
import signal

import pytest

from roberta_plugin.cli import main


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
    assert [line.split("   ")[-1] for line in shown[1:]] == ["'the'", "' cat'"]
    assert main(["tokenizer", "show", str(tmp_path / "bpe"), "\u00e9 \u65e5"]) == 0
    shown = [line.split("   ")[-1] for line in capsys.readouterr().out.splitlines()[1:]]
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


@pytest.mark.parametrize("is_earlier", [False, True])
@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece"])
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


def test_fewer_tokens_than_asked_for_are_a_warning(text_file, tmp_path, capsys):
    assert train(text_file, tmp_path / "bpe", "--vocab-size", "30000") == 0
    assert "tokens, --vocab-size asks for 30,000" in capsys.readouterr().err
    assert train(text_file, tmp_path / "few", "--vocab-size", "260") == 0
    assert "WARNING" not in capsys.readouterr().err


def test_options_reach_the_trainer(text_file, tmp_path, capsys):
    records = tmp_path / "c4.json"
    records.write_text('{"content": "the cat"}\n' * 3 + "{}\n")
    options = ["--json-field", "content", "--skip-bad-lines", "--min-frequency", "4", "--sample-megabytes", "1"]
    assert train(records, tmp_path / "bpe", *options) == 0
    assert "byte_level_bpe of 256 tokens" in capsys.readouterr().out  # no pair occurs four times
    (tmp_path / "empty.txt").write_text("")
    assert train(tmp_path / "empty.txt", tmp_path / "none") == 2
    assert "no text to train a tokenizer on" in capsys.readouterr().err


def test_a_tokenizer_without_dict_is_not_replaced_by_accident(text_file, tmp_path, capsys):
    assert train(text_file, tmp_path / "bpe") == 0
    (tmp_path / "bpe" / "dict.txt").unlink()
    assert train(text_file, tmp_path / "bpe", "--kind", "sentencepiece", "--vocab-size", "35") == 2
    assert "already holds encoder.json" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece", "character_bpe"])
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
