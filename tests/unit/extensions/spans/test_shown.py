"""What a preparation says of texts that do not fit."""

import re

import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.cli.finetuning import finetune
from roberta_plugin.extensions.spans.options import SquadOptions
from tests.shown_preparation import check_shown
from tests.tiny_conversions import write_checkpoint
from tests.tiny_squad import write_raw


def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys):
    write_raw(tmp_path / "raw")
    words = {"what": "questions with their passage", "fate": "divided into windows"}
    check_shown(tmp_path, capsys, "squad2", "--question-length", 6, **words)


@pytest.mark.parametrize("verb", ["prepare", "finetune", "evaluate"])
def test_the_help_of_the_task_shows_its_options(capsys, verb):
    with pytest.raises(SystemExit) as done:
        main([verb, "squad2", "--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0 and "options of squad2:" in shown and shown.count("\n") < 115
    for option, stage in {"--question-length": "prepare", "--n-best": "evaluate"}.items():
        assert (option in shown) is (verb in (stage, "finetune"))


def test_a_model_too_short_for_questions_is_told_what_to_do(tmp_path, capsys):
    model = write_checkpoint(tmp_path / "model", max_positions=40)
    write_raw(tmp_path / "raw")
    words = ["finetune", "squad2", "--raw", tmp_path / "raw", "--model", model, "--output-dir", tmp_path / "out"]
    words = [*map(str, words), "--grid-only"]
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert re.search(r"cannot be more than 40 here.*give --question-length 10, or pretrain", shown)
    assert main([*words, "--question-length", "10"]) == 0


def test_options_are_those_of_the_task(tmp_path):
    (tmp_path / "model.pt").touch()
    words = ["finetune", "squad2", "--data", str(tmp_path), "--model", str(tmp_path), "--output-dir", str(tmp_path)]
    asked = [*words, "--n-best", "5", "--doc-stride", "9", "--strict"]
    args = build_parser("finetune").parse_args(asked)
    assert finetune.settings_of(args)[0].options == SquadOptions(n_best=5, doc_stride=9, strict=True)
