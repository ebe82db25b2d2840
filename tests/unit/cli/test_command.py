import os
import signal
import time

import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.cli.command import call_in_child, terminated_like_interrupted
from tests.stopped_commands import check_stop
from tests.tiny_benchmarks import write_tokenizer


def add(first, second):
    return first + second


def refuse():
    raise ValueError("no")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_deaf(seconds):
    """As a library that does not let Python hear signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    time.sleep(seconds)


def test_results_and_errors_come_back():
    assert call_in_child(add, 1, second=2) == 3
    with pytest.raises(ValueError, match="no"):
        call_in_child(refuse)
    with pytest.raises(OSError, match="signal 9, most likely because memory ran out"):
        call_in_child(die)


@pytest.fixture
def terminal():
    """SIGHUP as in a terminal, whatever the tests were started by."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_child_at_once(number):
    before = signal.getsignal(number)
    started = time.monotonic()
    pids = []

    def interrupt(seconds):
        if seconds > 0.5:
            with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
                pids.extend(map(int, file.read().split()))
            os.kill(os.getpid(), number)

    with terminated_like_interrupted(), pytest.raises(KeyboardInterrupt):
        call_in_child(sleep_deaf, 60, on_wait=interrupt)
    assert time.monotonic() - started < 10
    assert pids
    assert signal.getsignal(number) == before


def test_an_error_is_not_taken_for_the_interrupt_of_an_earlier_command():
    with terminated_like_interrupted(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    args = build_parser("inspect").parse_args(["inspect", "nowhere"])
    with pytest.raises(FileNotFoundError):
        args.run(args)


@pytest.mark.usefixtures("terminal")
def test_under_nohup_a_closed_terminal_changes_nothing():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminated_like_interrupted():
        os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("words", "procedure"),
    [
        ("sweep grid.yaml --output-dir out", "experiments.sweeps.sweep.sweep"),
        ("finetune made --output-dir out --model a.pt", "experiments.finetune.finetune"),
        ("demo --output-dir demo", "cli.pretrain.run"),
        ("pretrain data-bin", "cli.pretrain.run"),
    ],
)
def test_sigterm_stops_trainings_in_order_as_ctrl_c_does(words, procedure, tmp_path, monkeypatch, capsys):
    """Else it would end the command alone, and leave its trainings running."""
    check_stop(words, procedure, tmp_path, monkeypatch, capsys)


def test_an_interrupted_pretraining_says_how_it_goes_on(tiny_data_bin, tmp_path, monkeypatch, capsys):
    def train(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("roberta_plugin.cli.pretrain.train", train)
    assert main(["pretrain", str(tiny_data_bin), "--recipe", "tour", "--cpu", "--output-dir", str(tmp_path)]) == 130
    assert "interrupted: the same command resumes" in capsys.readouterr().err


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("step", ["call_in_child", "write_split"])
def test_a_pretraining_that_is_interrupted_before_it_trains_says_so_too(step, tmp_path, monkeypatch, capsys):
    def swallow(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            raise RuntimeError("as libraries in C and Rust do") from None

    write_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("good bad good\n\n" * 100)
    monkeypatch.setattr(f"roberta_plugin.cli.text.{step}", swallow)
    words = ["--tokenizer", str(tmp_path / "tokenizer")] if step == "write_split" else []
    words += ["--recipe", "tour", "--cpu", "--output-dir", str(tmp_path / "out")]
    assert main(["pretrain", str(tmp_path / "text.txt"), *words]) == 143
    assert capsys.readouterr().err == "interrupted: the same command resumes\n"
