"""examples/pretrain/speech.py: quoted sentences of novels, utterances, and what is held out."""

import lzma
import runpy
import sys
from pathlib import Path

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


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, words)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


SAID = "".join(f"Line {number} .\n" for number in range(1000)).encode()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", (), "said.txt has no line"),
        (SAID + "na\u00efve\n".encode("latin-1"), (), "said.txt, line 1001: byte 0xef is not UTF-8"),
        (SAID[:900], (), "nothing is left to train on beside 200 sentences that are held out"),
        (SAID, ("--words", 0), "The first pieces have 600 and 600 words: raise --words"),
        (SAID, ("--words", 700), "The first pieces have 600 and 600 words: raise --words"),
        (SAID, ("--novels", "{said}"), "has no sentence in quotation marks"),
        (SAID, ("--said", "{said}s"), "No text file"),
    ],
    ids=["empty", "latin-1", "one-piece", "no-words", "few-words", "no-quotation", "missing"],
)
def test_what_gives_no_text_is_refused_and_nothing_is_written(content, options, message, tmp_path, monkeypatch):
    said = tmp_path / "said.txt"
    said.write_bytes(content)
    words = [str(option).format(said=said) for option in options]
    with pytest.raises(SystemExit, match=message):
        run(monkeypatch, tmp_path / "out", *(["--said", said] if "--said" not in words else []), *words)
    assert not (tmp_path / "out").exists()


def test_compressed_files_with_other_line_ends_give_the_same_and_no_file_is_overwritten(tmp_path, monkeypatch):
    (tmp_path / "said.txt").write_bytes(SAID)
    (tmp_path / "said.txt.xz").write_bytes(lzma.compress(b"\xef\xbb\xbf" + SAID.replace(b"\n", b"\r\n")))
    for name in ("said.txt", "said.txt.xz"):
        run(monkeypatch, tmp_path / f"of {name}", "--said", tmp_path / name)
    first, second = ([(tmp_path / f"of {name}" / f"{split}.txt").read_bytes() for split in ("train", "valid")]
                     for name in ("said.txt", "said.txt.xz"))  # fmt: skip
    assert first == second and first[0].count(b"line") == 800
    (tmp_path / "train.txt").write_bytes(SAID)
    with pytest.raises(SystemExit, match=r"train.txt exists: name another folder, or remove the file"):
        run(monkeypatch, tmp_path, "--said", tmp_path / "train.txt")
    assert (tmp_path / "train.txt").read_bytes() == SAID


def test_files_are_utf_8_whatever_the_locale(tmp_path, monkeypatch):
    (tmp_path / "novel.txt").write_text("\u201cWhere is Zo\u00eb\u2019s hat?\u201d\n" * 500, encoding="utf-8")
    opened = Path.open

    def open_as_in_another_locale(path, mode="r", *args, encoding=None, **options):
        return opened(path, mode, *args, encoding=encoding or (None if "b" in mode else "ascii"), **options)

    monkeypatch.setattr(Path, "open", open_as_in_another_locale)
    run(monkeypatch, tmp_path / "out", "--novels", tmp_path / "novel.txt")
    text = (tmp_path / "out" / "train.txt").read_bytes()
    assert text.startswith("where is zo\u00eb\u2019s hat?\n".encode())


def test_pieces_are_shuffled_and_lines_of_a_piece_are_not(tmp_path, monkeypatch, capsys):
    said = tmp_path / "said.txt"
    said.write_text("".join(f"Line {number} .\n" + "\n" * (number % 7 == 0) for number in range(40_000)))
    run(monkeypatch, tmp_path / "out", "--said", said, "--words", 100_000)
    train, valid = ((tmp_path / "out" / f"{name}.txt").read_text().split("\n\n") for name in ("train", "valid"))
    assert valid[0].startswith("line ") and len(valid[0].splitlines()) == 200
    firsts = [int(piece.split()[1]) for piece in train if piece]
    assert firsts != sorted(firsts) and not set(train) & set(valid) - {""}
    assert [int(line.split()[1]) for line in train[0].splitlines()] == list(range(firsts[0], firsts[0] + 200))
    assert "said.txt: 40,000 sentences, 120,000 words" in capsys.readouterr().out
    assert 99_000 < sum(len(piece.split()) for piece in (*train, *valid)) <= 100_000
