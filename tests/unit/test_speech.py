"""examples/pretrain/speech.py: quoted sentences of novels, utterances, and what is held out."""

import runpy
import sys

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "pretrain" / "speech.py"


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ('He said: "Come in, Mr. Pym. It is late!" and left.', ["Come in, Mr. Pym.", "It is late!"]),
        ("'I don't know,' she said, 'what the boys' mother wants.'", ["I don't know,", "what the boys"]),
        ("\u201cWhere is Tom\u2019s hat?\u201d", ["Where is Tom\u2019s hat?"]),
        ("Nothing is said here, and it's the dogs' own fault.", []),
        ('"No."', []),  # one word
    ],
)
def test_dialogues_are_what_stands_in_quotation_marks(paragraph, expected, tmp_path):
    (tmp_path / "novel.txt").write_text(paragraph + "\n")
    assert list(runpy.run_path(str(SCRIPT))["read_dialogues"](tmp_path / "novel.txt")) == expected


def test_pieces_are_shuffled_and_lines_of_a_piece_are_not(tmp_path, monkeypatch, capsys):
    said = tmp_path / "said.txt"
    said.write_text("".join(f"Line {number} .\n" + "\n" * (number % 7 == 0) for number in range(40_000)))
    words = [str(SCRIPT), str(tmp_path / "out"), "--said", str(said), "--words", "100000"]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    train, valid = ((tmp_path / "out" / f"{name}.txt").read_text().split("\n\n") for name in ("train", "valid"))
    assert valid[0].startswith("line ") and len(valid[0].splitlines()) == 200
    firsts = [int(piece.split()[1]) for piece in train if piece]
    assert firsts != sorted(firsts) and not set(train) & set(valid) - {""}
    assert [int(line.split()[1]) for line in train[0].splitlines()] == list(range(firsts[0], firsts[0] + 200))
    assert "said.txt: 40,000 sentences, 120,000 words" in capsys.readouterr().out
    assert 99_000 < sum(len(piece.split()) for piece in (*train, *valid)) <= 100_000
