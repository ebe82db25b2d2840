"""`roberta prepare`: raw files in, a folder out, refusals that say what is missing."""

import json
import re

import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.finetuning.prepared import Prepared
from tests import tiny_glue, tiny_race, tiny_squad, tiny_summaries, tiny_superglue, tiny_tagging
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tables import rows_of, write_csv


def run(*words):
    args = build_parser("prepare").parse_args(["prepare", *map(str, words)])
    return args.run(args)


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw").mkdir()
    line = {"id": "1", "context": "good", "question": "bad", "options": ["a", "b"], "answer": 1}
    (tmp_path / "raw" / "train.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path / "raw"


def test_a_folder_is_made_and_replaced_only_when_told(raw, tmp_path, capsys):
    words = ("multiple_choice", "--raw", raw, "--tokenizer", write_tokenizer(tmp_path / "tokenizer"))
    words += ("--output-dir", tmp_path / "out", "--max-length", 40, "--question-length", 20)
    assert run(*words) == 0
    assert "train: 1 examples, 2 sequences" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="give --overwrite to replace it"):
        run(*words)
    text = (raw / "train.jsonl").read_text()
    (raw / "train.jsonl").write_text(text + text.replace('"1"', '"2"'))
    assert run(*words, "--overwrite") == 0
    assert len(Prepared.open(tmp_path / "out").split("train")) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw", "tokenizer"]


@pytest.mark.parametrize(
    ("task", "write", "what", "fate"),
    [
        ("SST-2", tiny_glue.write_task, "texts", "cut"),
        ("QNLI", tiny_glue.write_task, "pairs", "cut"),
        ("WNLI", tiny_glue.write_task, "texts", "cut"),
        ("BoolQ", tiny_superglue.write_task, "pairs", "cut"),
        ("WSC", tiny_superglue.write_task, "texts", "cut"),
        ("COPA", tiny_superglue.write_task, "texts with an option", "cut"),
        ("race", tiny_race.write_race, "passages with question and option", "cut"),
        ("squad2", tiny_squad.write_raw, "questions with their passage", "divided into windows"),
        ("tagging", tiny_tagging.write_raw, "texts", "divided into windows"),
        ("summaries", tiny_summaries.write_raw, "documents", "divided into windows"),
        ("custom", None, "texts", "cut"),
    ],
)
def test_every_task_says_how_many_texts_do_not_fit_and_inspect_repeats_it(tmp_path, capsys, task, write, what, fate):
    raw = tmp_path / "raw"
    options = {"race": ("--question-length", 6), "squad2": ("--question-length", 6), "custom": ("--train", "my.csv")}
    if write is None:
        raw.mkdir()
        write_csv(raw / "my.csv", rows_of("classification", 60))
    else:
        write(raw, task) if "glue" in write.__module__ else write(raw)
    words = ("--raw", raw, "--tokenizer", write_tokenizer(tmp_path / "tokenizer"), "--output-dir", tmp_path / "out")
    assert run(task, *words, "--max-length", 12, *options.get(task, ())) == 0
    pattern = rf"train: (\S+) of (\S+) {what} are longer than 12 tokens and were {fate} \(longest (\d+)\)"
    found = re.search(pattern, shown := capsys.readouterr().out)
    assert found, shown
    longer, number, longest = (int(each.replace(",", "")) for each in found.groups())
    assert 0 < longer <= number and longest > 12
    main(["inspect", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert found.group().removeprefix("train: ") in shown
    assert "  max length: 12\n" in shown and "None" not in shown and "[" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--raw is missing: give the folder with the official files"),
        (("--raw", "{tmp}"), "--tokenizer is missing"),
        (("--raw", "{tmp}/none", "--tokenizer", "{tmp}"), "none does not exist"),
        (("--raw", "{tmp}", "--tokenizer", "{tmp}"), "No tokenizer in"),
        (("--raw", "{raw}", "--tokenizer", "{tok}", "--doc-stride", "3"), "--doc-stride is not an option of multiple"),
    ],
)
def test_what_is_missing_is_said(raw, tmp_path, words, message):
    places = {"tmp": tmp_path, "raw": raw, "tok": write_tokenizer(tmp_path / "tokenizer")}
    with pytest.raises((ValueError, OSError), match=message):
        run("multiple_choice", "--output-dir", tmp_path / "out", *(word.format(**places) for word in words))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["prepare", "finetune", "evaluate"])
def test_the_help_shows_the_general_options_and_those_of_the_task_alone(capsys, verb):
    shown = {}
    for task in ("squad2", "custom", "RTE", None):
        with pytest.raises(SystemExit) as done:
            main([verb, *([task] if task else []), "--help"])
        shown[task] = capsys.readouterr().out
        assert done.value.code == 0
        assert "--output-dir" in shown[task]
    own = {"squad2": {"--question-length": "prepare", "--n-best": "evaluate"}}
    own["custom"] = {"--group-column": "prepare", "--kind": "prepare", "--threshold": "evaluate"}
    for task, options in own.items():
        assert f"options of {task}:" in shown[task]
        for option, stage in options.items():
            assert (option in shown[task]) is (verb in (stage, "finetune"))
            assert not any(option in text for other, text in shown.items() if other != task)
    assert "options of RTE" not in shown["RTE"], "it has none"
    assert f"roberta {verb} TASK --help" in shown[None]
    assert shown["squad2"].count("\n") < 115


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-length", "5"), "--max-length must be 6 or more, got 5"),
        (("--label-separator", ";"), "--label-separator goes with --kind multi-label, not with classi"),
        (("--output-dir", "."), "--output-dir . is the current folder"),
        (("--output-dir", ""), "--output-dir is empty: name a file or folder"),
    ],
)
def test_values_that_cannot_work_are_refused_in_one_line(tmp_path, capsys, words, message):
    write_csv(tmp_path / "pairs.csv", rows_of("classification", 40))
    data = ("--train", tmp_path / "pairs.csv", "--tokenizer", write_tokenizer(tmp_path / "tokenizer"))
    command = ["prepare", "custom", *data, "--output-dir", tmp_path / "out", *words]
    assert main([str(word) for word in command]) == 2
    shown = capsys.readouterr().err
    assert message in shown and len(shown.splitlines()) == 1
    assert not (tmp_path / "out").exists()
