"""What a preparation says of texts that do not fit."""

import pytest

from roberta_plugin.cli import main
from tests import tiny_glue, tiny_superglue
from tests.shown_preparation import check_shown
from tests.tiny_benchmarks import write_tokenizer


@pytest.mark.parametrize(
    ("write_task", "task", "what"),
    [
        (tiny_glue.write_task, "SST-2", "texts"),
        (tiny_glue.write_task, "QNLI", "pairs"),
        (tiny_superglue.write_task, "BoolQ", "pairs"),
    ],
)
def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys, write_task, task, what):
    write_task(tmp_path / "raw", task)
    words = ("--raw", tmp_path / "raw", "--tokenizer", write_tokenizer(tmp_path / "tokenizer"), "--max-length", 12)
    assert main(["prepare", task, *map(str, words), "--output-dir", str(tmp_path / "out")]) == 0
    check_shown(tmp_path / "out", capsys, what=what, fate="cut")
