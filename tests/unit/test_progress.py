import io
import itertools
import os
import subprocess
import sys
import termios

import pytest

from roberta_plugin.progress import Progress, progress_bar, terminal_bar
from tests.conftest import REPOSITORY


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


def test_a_log_gets_lines_further_and_further_apart(clock):
    log = io.StringIO()
    times = []
    with Progress("binarize", 10**9, stream=log) as progress:
        for second in range(3600):
            clock[0] = 1000.0 + second
            before = log.tell()
            progress.show(second * 10**5)
            if log.tell() > before:
                times.append(second)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == 30
    assert gaps == sorted(gaps) and gaps[-1] > 200
    assert 10 < len(times) < 60
    lines = log.getvalue().splitlines()
    assert lines[0] == "binarize: 0% of 1.00G, 100kB/s, 2:46:10 left"
    assert lines[-1].startswith("binarize: 100% of 1.00G, ")
    assert len(lines) == len(times) + 1
    assert "\r" not in log.getvalue()


def test_a_short_step_and_one_that_is_not_shown_write_nothing(clock):
    log = io.StringIO()
    with Progress("binarize", 100, stream=log) as progress:
        progress.show(100)
    with Progress("binarize", 100, stream=log, is_shown=False) as progress:
        clock[0] += 1000
        progress.show(100)
    assert log.getvalue() == ""


def test_without_a_total_there_is_no_time_left(clock):
    log = io.StringIO()
    with Progress("read", None, stream=log) as progress:
        clock[0] += 40
        progress.show(5 * 10**6)
    assert log.getvalue().splitlines()[0] == "read: 5.00MB [00:40, 125kB/s]"


def test_a_step_that_fails_is_not_shown_as_done(clock):
    log = io.StringIO()
    with pytest.raises(OSError, match="gone"), Progress("read", 100, stream=log) as progress:
        clock[0] += 40
        progress.show(50)
        raise OSError("gone")
    assert "100%" not in log.getvalue()


def test_progress_of_any_unit_is_lines_in_a_log(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setenv("COLUMNS", "40")
    with progress_bar("training", total=2, unit="update") as bar:
        bar.set_postfix({"loss": "9.12", "valid accuracy": "12.7 %"}, refresh=False)
        bar.update(2)
    assert "\r" not in log.getvalue()
    assert "loss=9.12, valid accuracy=12.7 %" in log.getvalue(), "a line of a log is not cut to a terminal's width"
    assert log.getvalue().splitlines()[-1].lstrip().startswith("training: 100%")


def test_a_bar_is_as_wide_as_the_terminal_although_stdout_is_a_pipe(tmp_path):
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (50, 137))
    program = "from roberta_plugin.progress import terminal_size; print(terminal_size())"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    os.close(ours), os.close(theirs)
    assert done.stdout.strip() == "{'ncols': 137, 'nrows': 50}"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_bar_of_a_loop_is_for_terminals(monkeypatch, is_terminal):
    log = io.StringIO()
    monkeypatch.setattr(log, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("sys.stderr", log)
    assert list(terminal_bar(iter("abc"), "RACE train", unit=" passages")) == ["a", "b", "c"]
    assert ("RACE train" in log.getvalue()) == is_terminal


def test_no_preparation_writes_a_bar_of_its_own():
    """`roberta prepare` of any task leaves a log without bars."""
    package = REPOSITORY / "roberta_plugin"
    sources = [path for room in ("finetuning", "extensions") for path in (package / room).rglob("*.py")]
    assert [path for path in sources if "terminal_bar(" in path.read_text()]
    assert not [path for path in sources if "tqdm" in path.read_text()]
