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
        assert rows["00"] == ["25.0"] and rows["66"] == [f"{other:.1f}"]
        assert rows["argument_structure"][:3] == [f"{other:.1f}", "71.9", "73.2"]  # s-selection belongs to it
        assert rows["binding"][0] == f"{(first + 63 * other) / 64:.1f}"
        assert rows["all"] == [f"{(first + 66 * other) / 67:.1f}", "61.2", "69.8", "69.6", "83.0", "69.5", "88.6"]
    else:
        ours = f"{(first + 22 * other) / 23:.1f}"
        assert rows["case"] == [ours, "75.1"] and rows["all"] == [ours, "82.5"]
    assert "reads at most 40 tokens: 1 longer pairs are wrong" in printed
    assert (tmp_path / "out.md").read_text() == printed


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
        ("blimp", None, "holds 66 files"),
    ],
)
def test_what_is_no_pair_is_named_by_file_and_line(benchmark, content, message, model, tmp_path, monkeypatch):
    folder = write_pairs(tmp_path / "pairs", benchmark)
    first = sorted(folder.iterdir())[0]
    first.unlink() if content is None else first.write_text(content)
    with pytest.raises(SystemExit, match=message):
        score(benchmark, folder, model, monkeypatch=monkeypatch)
