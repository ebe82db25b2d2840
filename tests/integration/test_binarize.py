"""The real command `roberta binarize`: killed and run again, with any number of workers."""

import gzip
import json
import os
import random
import re
import shlex
import signal
import subprocess
import termios
import time

import pytest

from roberta_plugin.data.mmap_tokens import MmapTokens
from tests.tiny_corpus import command, environment, run, run_here

pytestmark = pytest.mark.integration

FILES = ("train.bin", "train.idx", "dict.txt")
NUM_LINES = 80_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text in a plain and a compressed file, and a tokenizer trained on some of it by the real command."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 7))) for _ in range(2000)]
    lines = ["" if number % 50 == 49 else " ".join(rng.choices(words, k=12)) for number in range(NUM_LINES)]
    text = "\n".join(lines) + "\n"
    (folder / "a.txt").write_text(text)
    (folder / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "sample.txt").write_text(text[:100_000])
    trained = run(
        [
            *command("roberta"),
            *("tokenizer", "train", "--kind", "byte_level_bpe", "--vocab-size", "500"),
            *("--input", str(folder / "sample.txt"), "--output-dir", str(folder / "tokenizer")),
        ]
    )
    assert trained.returncode == 0, trained.stderr
    return folder


def binarize_command(corpus, destination, *options):
    return [
        *command("roberta"),
        *("binarize", "--train", str(corpus / "a.txt"), str(corpus / "b.txt.gz")),
        *("--tokenizer", str(corpus / "tokenizer"), "--output-dir", str(destination)),
        *("--part-bytes", "66000", "--no-progress", *options),
    ]


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """What an uninterrupted run with one worker writes."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    done = run(binarize_command(corpus, folder, "--workers", "1"))
    assert done.returncode == 0, done.stderr
    assert "0.000% unknown" in done.stdout
    assert len(MmapTokens(folder / "train")) == 2 * NUM_LINES
    return folder


def assert_same(folder, whole, *names):
    """The same files, by name and, of these and the data themselves, by content."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in whole.iterdir())
    for name in (*FILES, *names):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def test_three_workers_write_the_same_bytes(corpus, whole, tmp_path):
    """And two, when they were killed: below."""
    done = run(binarize_command(corpus, tmp_path / "data", "--workers", "3"))
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "data", whole, "manifest.json", "encoder.json", "vocab.bpe")


def test_two_of_the_same_command_at_once_both_end_well(corpus, whole, tmp_path):
    """The second waits for the first, also when it takes long, and when it has just begun."""
    arguments = binarize_command(corpus, tmp_path / "data", "--workers", "1")
    starts = []
    for delay in (0.3, 0):
        starts.append(subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        time.sleep(delay)
    for process in starts:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        assert output.startswith(b"train: ")
    assert_same(tmp_path / "data", whole)


def start_and_kill(arguments, folder, *, at_least):
    """Start the command, kill -9 its first process when so many part files are there; return them with their times."""
    process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("*.part"))) < at_least:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "too few part files in two minutes"
        time.sleep(0.002)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        workers = [int(number) for number in file.read().split()]
    assert workers
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for worker in workers:
        wait_for_end(worker)
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.part")}


def wait_for_end(pid):
    """Wait until a process whose parent is gone has ended too."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    raise AssertionError(f"the worker {pid} outlives its parent")


def test_killed_terminated_interrupted_and_run_again(corpus, whole, tmp_path):
    parts = tmp_path / "data" / "train.parts"
    arguments = binarize_command(corpus, tmp_path / "data", "--workers", "2")
    first = start_and_kill(arguments, parts, at_least=20)
    assert not (tmp_path / "data" / "train.bin").exists()
    second = start_and_kill(arguments, parts, at_least=len(first) + 20)
    assert first.items() <= second.items(), "a finished part was written again"

    # `kill`, a step of SLURM, Ctrl-C on a terminal
    for number, send in ((signal.SIGTERM, os.kill), (signal.SIGTERM, os.killpg), (signal.SIGINT, os.killpg)):
        before = len(list(parts.glob("*.part")))
        pipes = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen(arguments, env=environment(), **pipes)
        while len(list(parts.glob("*.part"))) < before + 5:
            assert process.poll() is None
            time.sleep(0.002)
        send(process.pid, number)
        _, messages = process.communicate(timeout=60)
        assert (process.returncode, messages) == (128 + number, "interrupted\n")
        assert not list((tmp_path / "data").glob(".*"))

    done = run(arguments)
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "data", whole, "manifest.json")


def test_killed_while_the_files_are_put_together(corpus, whole, tmp_path):
    """All parts are there; what is missing is the last second. Nothing hidden may stay, whatever was going on."""
    parts = tmp_path / "data" / "train.parts"
    arguments = binarize_command(corpus, tmp_path / "data", "--workers", "2")
    num_kills = 0
    for name in ("train.bin", "train.idx"):
        process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (parts / name).exists():
            time.sleep(0.0005)
        process.kill()
        num_kills += process.wait() == -signal.SIGKILL
    assert num_kills == 2
    assert run(arguments).returncode == 0
    assert_same(tmp_path / "data", whole, "manifest.json")


def test_the_standard_input_and_a_process_substitution(corpus, whole, tmp_path):
    """Compressed and not; the parts of one stream are made by several workers."""
    rest = f"--tokenizer {corpus / 'tokenizer'} --part-bytes 100000 --workers 3 --output-dir"
    lines = [
        f"zcat {corpus / 'b.txt.gz'} | cat {corpus / 'a.txt'} - | roberta binarize --train - {rest} {tmp_path / 'stdin'}",
        f"roberta binarize --train {corpus / 'a.txt'} <(cat {corpus / 'b.txt.gz'}) {rest} {tmp_path / 'fifo'}",
    ]
    for line in lines:
        line = line.replace("roberta binarize", " ".join([*map(shlex.quote, command("roberta")), "binarize"]))
        done = run(["bash", "-o", "pipefail", "-c", line])
        assert done.returncode == 0, done.stderr
    for name in ("stdin", "fifo"):
        for file in FILES:
            assert (tmp_path / name / file).read_bytes() == (whole / file).read_bytes(), (name, file)


def test_a_run_that_waits_for_a_pipe_can_be_stopped(corpus, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    options = ["--tokenizer", str(corpus / "tokenizer"), "--output-dir", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command("roberta"), "binarize", "--train", str(tmp_path / "pipe"), *options],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with open(tmp_path / "pipe", "w") as pipe:  # waits for the reader
        pipe.write("a line, and then nothing")
        pipe.flush()
        process.terminate()
        _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == (143, "interrupted\n")


def test_training_a_vocabulary_stops_at_once_when_interrupted(tmp_path):
    letters = random.Random(2).randbytes(12_000_000).translate(b"abcdefghijklmnop" * 16)
    (tmp_path / "long.txt").write_bytes(b"\n".join(letters[at : at + 12] for at in range(0, len(letters), 12)))
    arguments = ["tokenizer", "train", "--input", str(tmp_path / "long.txt"), "--output-dir", str(tmp_path / "bpe")]
    process = subprocess.Popen(
        [*command("roberta"), *arguments], env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(3)
    assert process.poll() is None
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert time.monotonic() - started < 3
    assert process.returncode == 130
    assert messages == "interrupted\n"
    assert not (tmp_path / "bpe").exists()


def test_the_bar_shows_speed_and_time_left(corpus, tmp_path):
    arguments = [word for word in binarize_command(corpus, tmp_path / "data") if word != "--no-progress"]
    terminal, other_end = os.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=other_end)
    os.close(other_end)
    shown = b""
    try:
        while data := os.read(terminal, 2**16):
            shown += data
    except OSError:  # so ends what a terminal shows, on Linux
        pass
    os.close(terminal)
    assert process.wait() == 0
    assert b"100%" in shown
    assert re.search(rb"\d\d:\d\d<\d\d:\d\d, +[\d.]+[kM]?B/s", shown)  # time so far, time left, speed


def test_errors_are_one_line(corpus, tmp_path, capsys):
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\n")
    settings = ["--tokenizer", str(corpus / "tokenizer"), "--output-dir", str(tmp_path / "data"), "--no-progress"]
    cases = [
        (["--train", str(tmp_path / "bad.txt"), *settings], "bad.txt, line 2: byte 0xff"),
        (["--train", str(tmp_path / "absent.txt"), *settings], "No text file"),
        (["--train", str(corpus / "a.txt"), *settings, "--dict", str(tmp_path / "no.txt")], "no.txt does not exist"),
        (settings, "Nothing to binarize"),
        (["--train", str(corpus / "a.txt"), *settings, "--tokenizer", str(tmp_path)], "No tokenizer in"),
    ]
    for arguments, message in cases:
        done = run_here([*command("roberta"), "binarize", *arguments], capsys)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_inspect_finds_the_data_sound_and_damage(whole, tmp_path):
    done = run([*command("roberta"), "inspect", str(whole)])
    assert done.returncode == 0, done.stderr
    assert "train: sound" in done.stdout
    assert f"{2 * NUM_LINES:,} lines ({2 * NUM_LINES // 50:,} blank)" in done.stdout

    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in whole.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    content = bytearray((damaged / "train.bin").read_bytes())
    content[1000] ^= 1
    (damaged / "train.bin").write_bytes(content)
    done = run([*command("roberta"), "inspect", str(damaged)])
    assert done.returncode == 1
    assert "train: NOT SOUND" in done.stdout
    assert "SHA-256" in done.stdout
    assert json.loads((whole / "manifest.json").read_text())["splits"]["train"]["counts"]["unknown"] == 0
