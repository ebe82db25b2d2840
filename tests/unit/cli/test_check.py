"""`roberta check`, and its lines before a pretraining."""

import re

import pytest

from roberta_plugin.cli import main
from roberta_plugin.pretraining import text_look
from tests.tiny_tokenizers import train_tokenizer

SENTENCES = (
    "the cat sat on the mat",
    "a dog barked at the moon all night long",
    "nobody knows where the river ends, or where it begins",
)
MENU = "Home | About | Contact: the menu line of this very web site"


@pytest.fixture
def text(tmp_path):
    """200 documents; each second one begins with the same line."""
    lines = [f"{MENU if number % 2 else ''}\n{SENTENCES[number % len(SENTENCES)]} {number}\n" for number in range(200)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines))
    return path


def test_the_verb_names_faults_leaks_and_tokenizers(text, tmp_path, capsys):
    train_tokenizer("byte_level_bpe", [text], vocab_size=300, folder=tmp_path / "tokenizer")
    capsys.readouterr()
    assert main(["check", str(text), "--tokenizer", str(tmp_path / "tokenizer")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"repeat an earlier line: .*\n    .*text\.txt, line \d+: 'Home \| About", out)
    assert re.search(r"\d of \d held-out lines \(\d+\.\d%\) are also in the training text", out)
    assert out.count("held-out lines") == 1
    assert "Scores on such text measure memory" in out
    assert re.search(r"\| \S+ \| \d\.\d\d \| \d\.\d\d \| \d+\.\d% \| 0\.00% \|", out)


def test_another_held_out_text_is_compared_and_a_sound_text_has_nothing_to_mend(text, tmp_path, capsys):
    sound, other = tmp_path / "sound.txt", tmp_path / "other.txt"
    sound.write_text("\n\n".join(f"sentence {number} of a sound text" for number in range(100)))
    other.write_text("an unseen line\n")
    assert main(["check", str(sound), "--valid", str(other)]) == 0
    out = capsys.readouterr().out
    assert "0 of 1 held-out lines" in out and "No faults found." in out
    other.write_text("sentence 7 of a sound text\n")
    assert main(["check", str(sound), "--valid", str(other)]) == 0
    assert "1 of 1 held-out lines (100.0%)" in capsys.readouterr().out


def test_a_text_too_large_to_be_compared_with_its_held_out_part_is_said_to_be(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(text_look, "MOST_BYTES", 1000)
    assert main(["check", str(text)]) == 0
    assert text_look.NOT_COMPARED in capsys.readouterr().out
    assert main(["pretrain", str(text), "--dry-run", "--output-dir", str(tmp_path / "run")]) == 0
    assert f"note: {text_look.NOT_COMPARED}" in capsys.readouterr().out


def test_a_dry_run_of_a_pretraining_has_the_warnings(text, tmp_path, capsys):
    assert main(["pretrain", str(text), "--dry-run", "--output-dir", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "WARNING: " in out and "repeat an earlier line" in out
    assert f"`roberta check {text}` shows the lines." in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("content", "message"), [("", "there is no text"), (None, "No text file")])
def test_what_cannot_be_looked_at_is_refused(tmp_path, content, message, capsys):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_text(content)
    assert main(["check", str(path)]) == 2
    assert message in capsys.readouterr().err
