"""What a preparation says of texts that do not fit."""

from roberta_plugin.cli import main
from tests.shown_preparation import check_shown
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tagging import write_raw


def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys):
    write_raw(tmp_path / "raw")
    words = ("--raw", tmp_path / "raw", "--tokenizer", write_tokenizer(tmp_path / "tokenizer"), "--max-length", 12)
    assert main(["prepare", "tagging", *map(str, words), "--output-dir", str(tmp_path / "out")]) == 0
    check_shown(tmp_path / "out", capsys, what="texts", fate="divided into windows")
