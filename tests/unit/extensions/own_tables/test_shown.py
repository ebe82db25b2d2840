"""What a preparation says of texts that do not fit."""

import re

import pytest

from roberta_plugin.cli import main
from tests.shown_preparation import check_shown
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_conversions import write_checkpoint
from tests.tiny_tables import rows_of, write_csv


def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    write_csv(tmp_path / "raw" / "my.csv", rows_of("classification", 60))
    check_shown(tmp_path, capsys, "custom", "--train", "my.csv", what="texts", fate="cut")


@pytest.mark.parametrize("verb", ["prepare", "finetune", "evaluate"])
def test_the_help_of_the_task_shows_its_options(capsys, verb):
    with pytest.raises(SystemExit) as done:
        main([verb, "custom", "--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0 and "options of custom:" in shown and shown.count("\n") < 400
    for option, stage in {"--group-column": "prepare", "--kind": "prepare", "--threshold": "evaluate"}.items():
        assert (option in shown) is (verb in (stage, "finetune"))


def test_options_of_another_kind_are_refused_in_one_line(tmp_path, capsys):
    write_csv(tmp_path / "pairs.csv", rows_of("classification", 40))
    words = ("--train", tmp_path / "pairs.csv", "--tokenizer", write_tokenizer(tmp_path / "tokenizer"))
    words = ["prepare", "custom", *words, "--output-dir", tmp_path / "out", "--label-separator", ";"]
    assert main([str(word) for word in words]) == 2
    shown = capsys.readouterr().err
    assert "--label-separator goes with --kind multi-label, not with classi" in shown and len(shown.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_where_no_table_is_given_or_a_weight_is_no_number_it_is_said(tmp_path, capsys):
    model = write_checkpoint(tmp_path / "model", max_positions=40)
    words = ["finetune", "custom", "--model", str(model), "--output-dir", str(tmp_path / "out"), "--grid-only"]
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert re.search(r"--train is missing: give your table.* Or give a prepared folder by --data", shown)
    write_csv(tmp_path / "my.csv", rows_of("classification", 60))
    assert main([*words, "--train", str(tmp_path / "my.csv"), "--class-weights", "rare=nan"]) == 2
    shown = capsys.readouterr().err.strip()
    assert shown.endswith("a number from 0 on, got 'nan'."), "the length of the model is not the reason"
