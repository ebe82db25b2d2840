"""What a preparation says of texts that do not fit."""

import pytest

from roberta_plugin.cli import main
from tests import tiny_race, tiny_superglue
from tests.shown_preparation import check_shown
from tests.tiny_benchmarks import write_tokenizer


@pytest.mark.parametrize(
    ("write", "task", "what", "options"),
    [
        (tiny_superglue.write_task, "COPA", "texts with an option", ()),
        (tiny_race.write_race, "race", "passages with question and option", ("--question-length", 6)),
    ],
)
def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys, write, task, what, options):
    write(tmp_path / "raw", task) if task == "COPA" else write(tmp_path / "raw")
    words = (
        "--raw",
        tmp_path / "raw",
        "--tokenizer",
        write_tokenizer(tmp_path / "tokenizer"),
        "--max-length",
        12,
        *options,
    )
    assert main(["prepare", task, *map(str, words), "--output-dir", str(tmp_path / "out")]) == 0
    check_shown(tmp_path / "out", capsys, what=what, fate="cut")
