"""`roberta prepare`: raw files in, a folder out, refusals that say what is missing."""

import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.finetuning.prepared import Prepared
from tests.shown_preparation import check_shown
from tests.tiny_benchmarks import write_made, write_tokenizer


def run(*words):
    args = build_parser("prepare").parse_args(["prepare", *map(str, words)])
    return args.run(args)


@pytest.fixture
def raw(tmp_path):
    return write_made(tmp_path / "raw", train=1, valid=1, test=1)


def test_a_folder_is_made_and_replaced_only_when_told(raw, tmp_path, capsys):
    words = ("made", "--raw", raw, "--tokenizer", write_tokenizer(tmp_path / "tokenizer"))
    words += ("--output-dir", tmp_path / "out", "--max-length", 40, "--made-length", 20)
    assert run(*words) == 0
    assert "train: 1 examples, 1 sequences" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="give --overwrite to replace it"):
        run(*words)
    text = (raw / "train.jsonl").read_text()
    (raw / "train.jsonl").write_text(text + text.replace("train-0", "train-1"))
    assert run(*words, "--overwrite") == 0
    assert len(Prepared.open(tmp_path / "out").split("train")) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw", "tokenizer"]


def test_how_many_texts_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys):
    write_made(tmp_path / "raw")
    check_shown(tmp_path, capsys, "made", "--made-length", 4, what="texts", fate="cut")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--raw is missing: give the folder with the official files"),
        (("--raw", "{tmp}"), "--tokenizer is missing"),
        (("--raw", "{tmp}/none", "--tokenizer", "{tmp}"), "none does not exist"),
        (("--raw", "{tmp}", "--tokenizer", "{tmp}"), "No tokenizer in"),
        (
            ("--raw", "{raw}", "--tokenizer", "{tok}", "--made-length", "39", "--max-length", "39"),
            "leaves no token for the",
        ),
    ],
)
def test_what_is_missing_is_said(raw, tmp_path, words, message):
    places = {"tmp": tmp_path, "raw": raw, "tok": write_tokenizer(tmp_path / "tokenizer")}
    with pytest.raises((ValueError, OSError), match=message):
        run("made", "--output-dir", tmp_path / "out", *(word.format(**places) for word in words))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["prepare", "finetune", "evaluate"])
def test_the_help_shows_the_general_options_and_those_of_the_task_alone(capsys, verb):
    shown = {}
    for task in ("made", "made-plain", None):
        with pytest.raises(SystemExit) as done:
            main([verb, *([task] if task else []), "--help"])
        shown[task] = capsys.readouterr().out
        assert done.value.code == 0
        assert "--output-dir" in shown[task]
    assert "options of made:" in shown["made"]
    for option, stage in {"--made-length": "prepare", "--made-draws": "evaluate"}.items():
        assert (option in shown["made"]) is (verb in (stage, "finetune"))
        assert not any(option in text for other, text in shown.items() if other != "made")
    assert "options of made-plain" not in shown["made-plain"], "it has none"
    assert f"roberta {verb} TASK --help" in shown[None]
    assert shown["made"].count("\n") < 115


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-length", "5"), "--max-length must be 6 or more, got 5"),
        (("--output-dir", "."), "--output-dir . is the current folder"),
        (("--output-dir", ""), "--output-dir is empty: name a file or folder"),
    ],
)
def test_values_that_cannot_work_are_refused_in_one_line(raw, tmp_path, capsys, words, message):
    data = ("--raw", raw, "--tokenizer", write_tokenizer(tmp_path / "tokenizer"))
    assert main([str(word) for word in ("prepare", "made", *data, "--output-dir", tmp_path / "out", *words)]) == 2
    shown = capsys.readouterr().err
    assert message in shown and len(shown.splitlines()) == 1
    assert not (tmp_path / "out").exists()
