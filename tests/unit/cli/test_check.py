"""`roberta check`, and its lines before a pretraining."""

import json
import os
import re
import shlex

import fsspec
import pytest

from roberta_plugin.cli import main, pretrain
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


def test_the_command_that_shows_more_reads_the_text_in_the_same_way(text, tmp_path, capsys):
    """It lacked the column and the format, and was refused."""
    table = tmp_path / "my table"
    rows = [json.dumps({"body": line}) for line in text.read_text().splitlines() if line]
    table.write_text("\n".join(rows) + "\n")
    words = [str(table), "--text-column", "body", "--format", "jsonl"]
    assert main(["pretrain", *words, "--dry-run", "--output-dir", str(tmp_path / "run")]) == 0
    (command,) = re.findall(r"`roberta (check .*)` shows the lines\.", capsys.readouterr().out)
    assert main(shlex.split(command)) == 0
    assert "repeat an earlier line" in capsys.readouterr().out


def test_a_text_by_url_or_pipe_is_checked_when_it_is_copied_or_a_note_says_that_it_is_not(text, tmp_path, capsys):
    url, folder = "memory://check/text.txt", tmp_path / "run"
    fsspec.filesystem("memory").pipe("/check/text.txt", text.read_bytes())
    os.mkfifo(tmp_path / "pipe")
    for words, note in (
        ([url], f"{url}, a URL, is read once: the text is checked when it has been copied"),
        (
            [url, "--valid", str(text)],
            f"a URL, is not checked before the training. `roberta check {url} --valid {text}`",
        ),
        ([str(tmp_path / "pipe")], "A pipe is read once: the text is checked when it has been copied"),
        ([str(text), "--valid", str(tmp_path / "pipe")], "A pipe is not checked before the training. Write the text"),
    ):
        assert main(["pretrain", *words, "--dry-run", "--output-dir", str(folder)]) == 0
        out = capsys.readouterr().out
        assert "note: " in out and note in out


def test_the_copy_of_a_text_by_url_is_checked_before_a_tokenizer_is_made(text, tmp_path, capsys, monkeypatch):
    folder, steps = tmp_path / "run", pretrain.steps_of_text
    fsspec.filesystem("memory").pipe("/check/text.txt", text.read_bytes())
    monkeypatch.setattr(pretrain, "steps_of_text", lambda settings: [["recipes", f"nowhere-{len(steps(settings))}"]])
    assert main(["pretrain", "memory://check/text.txt", "--output-dir", str(folder)]) == 2
    said = capsys.readouterr()
    assert "repeat an earlier line" in said.out and "nowhere-2" in said.err
    copies = folder / "text"
    assert f"`roberta check {copies}/train.txt --valid {copies}/valid.txt` shows the lines." in said.out


@pytest.mark.parametrize(("content", "message"), [("", "there is no text"), (None, "No text file")])
def test_what_cannot_be_looked_at_is_refused(tmp_path, content, message, capsys):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_text(content)
    assert main(["check", str(path)]) == 2
    assert message in capsys.readouterr().err
