"""examples/score_minimal_pairs.py on small files: numbers of a loop over the hub, published ones, and what is no pair."""

import json
import runpy
import sys

import numpy as np
import pytest
import torch

from roberta_plugin.hub import RobertaHub
from tests.conftest import REPOSITORY
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of

SCRIPT = REPOSITORY / "examples" / "score_minimal_pairs.py"
PAIRS = [
    ("The dogs see it.", "The dogs sees it."),
    ("A good dog sleeps.", "A good dog sleep."),
    ("It is bad.", "It bad."),
]
TERMS = ["binding"] * 64 + ["s-selection"] * 2 + ["argument_structure"]


def write_pairs(folder, benchmark, pairs=PAIRS):
    """As many files as the benchmark has, the first with `pairs` and the others with `PAIRS`."""
    folder.mkdir(parents=True)
    for number in range({"blimp": 67, "zorro": 23}[benchmark]):
        lines = []
        for good, bad in PAIRS if number else pairs:
            if benchmark == "zorro":
                lines += [bad, good]
            else:
                row = {"sentence_good": good, "sentence_bad": bad, "linguistics_term": TERMS[number]}
                lines.append(json.dumps(row))
        name = f"{number:02}.jsonl" if benchmark == "blimp" else f"case-{number:02}.txt"
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A checkpoint with a tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    write_tokenizer(folder)
    torch.manual_seed(1)
    torch.save(state_of(folder), folder / "checkpoint_last.pt")
    return folder / "checkpoint_last.pt"


def score(*words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, words)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def rows_of(text):
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {name: values for name, *values in cells}


@pytest.mark.parametrize(("benchmark", "method"), [("blimp", "pll"), ("zorro", "unmasked")])
def test_numbers_equal_a_loop_over_the_hub(benchmark, method, model, tmp_path, monkeypatch, capsys):
    pairs = [PAIRS[0], PAIRS[0][::-1], ("Same.", "Same."), ("The dogs see " + "x" * 60, "The dogs")]
    folder = write_pairs(tmp_path / "pairs", benchmark, pairs)
    score(benchmark, folder, model, "--output", tmp_path / "out.md", "--device", "cpu", monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    rows = rows_of(printed)
    hub = RobertaHub.from_pretrained(model)

    def percent(pairs):
        return 100 * np.mean([hub.score(good, method).score > hub.score(bad, method).score for good, bad in pairs])

    first, other = 25.0, percent(PAIRS)  # one of each sentence and its reverse is right; a tie and what is long never
    if benchmark == "blimp":
        assert rows["00"] == ["25.0", "4"] and rows["66"] == [f"{other:.1f}", "3"]
        assert rows["argument_structure"] == [f"{other:.1f}"]  # s-selection belongs to it
        assert rows["binding"] == [f"{(first + 63 * other) / 64:.1f}"]
        assert rows["all"] == [f"{(first + 66 * other) / 67:.1f}"]
    else:
        ours = f"{(first + 22 * other) / 23:.1f}"
        assert rows["case"] == rows["all"] == [ours]
    assert "Published numbers are left out, which are those of all pairs: these are 4 pairs of " in printed
    assert "reads at most 40 tokens: 1 longer pairs are wrong" in printed
    assert (tmp_path / "out.md").read_text() == printed


def test_lowercase_scores_the_sentences_in_lower_case(model, tmp_path, monkeypatch, capsys):
    upper = [(good.upper(), bad.upper()) for good, bad in PAIRS]
    folder = write_pairs(tmp_path / "pairs", "zorro", upper)
    score("zorro", folder, model, "--lowercase", "--limit", "3", monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    hub = RobertaHub.from_pretrained(model)
    right = [
        hub.score(good.lower(), "unmasked").score > hub.score(bad.lower(), "unmasked").score for good, bad in upper
    ]
    assert rows_of(printed)["case-00"] == [f"{100 * np.mean(right):.1f}", "3"] and "fp32 in lower case:" in printed


@pytest.mark.parametrize(
    ("benchmark", "content", "message"),
    [
        (
            "blimp",
            '{"sentence_good": "A.", "linguistics_term": "binding"}\n',
            "line 1: there is no column 'sentence_bad'",
        ),
        ("zorro", "a b .\na c .\na d .\n", "has 3 lines, and a pair is two"),
        ("zorro", "a b .\n\n", "line 2 is empty"),
        ("blimp", "", "jsonl is empty: fetch it again"),
        ("zorro", "", "txt is empty: fetch it again"),
        ("zorro", "a b .\na c .\na <mask> .\na d .\n", "line 3: a sentence has a <mask>"),
    ],
)
def test_what_is_no_pair_is_named_by_file_and_line(benchmark, content, message, model, tmp_path, monkeypatch):
    folder = write_pairs(tmp_path / "pairs", benchmark)
    first = sorted(folder.iterdir())[0]
    first.write_text(content)
    with pytest.raises(SystemExit, match=message):
        score(benchmark, folder, model, monkeypatch=monkeypatch)


def test_other_sets_in_the_format_are_scored_without_published_numbers(model, tmp_path, monkeypatch, capsys):
    """BabyLM's supplement, say, whose pairs name no phenomenon, or a few filtered ones."""
    folder = tmp_path / "supplement"
    folder.mkdir()
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in PAIRS]
    (folder / "hypernym.jsonl").write_text("\n".join(lines))
    score("blimp", folder, model, "--device", "cpu", monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    assert "which are those of all pairs: these are 1 files, and blimp has 67" in printed
    assert "GPT-2" not in printed and rows_of(printed)["hypernym"][-1] == "3"
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SystemExit, match=r"holds no file \*\.txt"):
        score("zorro", empty, model, monkeypatch=monkeypatch)


@pytest.mark.parametrize(("benchmark", "size"), [("blimp", 1000), ("zorro", 2000)])
def test_the_whole_official_set_alone_stands_beside_published_numbers(benchmark, size):
    script = runpy.run_path(str(SCRIPT))
    of_one_model = script["published"](benchmark)["GPT-2" if benchmark == "blimp" else "roberta-base"]
    known = [name for name in of_one_model if name != "all"]
    number = script["NUM_FILES"][benchmark]
    whole = [script["Paradigm"](str(at), known[at % len(known)], [("a", "b")] * size) for at in range(number)]
    difference = script["difference"]
    assert difference(benchmark, whole) == ""
    assert difference(benchmark, whole[1:]) == f"{number - 1} files, and {benchmark} has {number}"
    fewer = [whole[0]._replace(pairs=whole[0].pairs[1:]), *whole[1:]]
    assert difference(benchmark, fewer) == f"{size - 1:,} pairs of 0, and {benchmark} has {size:,}"
    other = [
        each._replace(phenomenon="\u0441\u043e\u0433\u043b\u0430\u0441\u043e\u0432\u0430\u043d\u0438\u0435")
        for each in whole
    ]
    assert "other phenomena" in difference(benchmark, other)
