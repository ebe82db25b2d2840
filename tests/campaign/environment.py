"""A full disk, a read-only folder, two runs in one folder, a killed or stopped rank: an end that says why, in time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.campaign.outcome import Table
from tests.campaign.subjects import OUTPUT, Subject, pretraining
from tests.tiny_corpus import command, environment, run

PATIENCE_S = 240.0


def full_disk(inputs: Path, folder: Path) -> str:
    """A tmpfs with room for one checkpoint and no more: an error that names the file, and the old one whole."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        return "skipped: no tmpfs can be mounted here"
    try:
        subject = pretraining("", inputs, str(inputs / "a"), "--encoder-embed-dim", "48")
        done = run([*subject.start(disk)[0], "--keep-interval-updates", "9"])
        whole = [path for path in (disk / "checkpoints").glob("checkpoint*.pt") if loads(path)]
        broken = [path.name for path in (disk / "checkpoints").glob("checkpoint*.pt") if not loads(path)]
        assert done.returncode != 0, "ended with success on a full disk"
        assert "No space left" in done.stderr and "checkpoint" in done.stderr.splitlines()[-1], done.stderr[-300:]
        assert whole and not broken, f"unreadable: {broken}; whole: {whole}"
        return "ok"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def loads(path: Path) -> bool:
    """Whether a checkpoint can be read."""
    try:
        torch.load(path, weights_only=True)
    except Exception:
        return False
    return True


def read_only(inputs: Path, folder: Path) -> str:
    """A folder that cannot be written to is named before any work (mounted so: root ignores permissions)."""
    target = folder / "read-only"
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(target)], capture_output=True)
    if mounted.returncode:
        return "skipped: no read-only file system can be mounted here"
    try:
        words = ["--train", str(inputs / "small.txt"), "--tokenizer", str(inputs / "tokenizer"), "--no-progress"]
        done = run([*command("roberta"), "binarize", *words, OUTPUT, str(target / "bin")])
        assert done.returncode == 2 and str(target) in done.stderr and "Traceback" not in done.stderr, done.stderr
        return "ok"
    finally:
        subprocess.run(["umount", str(target)], check=True)


@dataclass(frozen=True)
class Running:
    """A process, and the file with its output."""

    process: subprocess.Popen[bytes]
    log: Path

    def end(self) -> str:
        """Wait for its end; its output."""
        self.process.wait(PATIENCE_S)
        return self.log.read_text(errors="replace")


def started(subject: Subject, folder: Path, *options: str) -> list[Running]:
    """The subject's processes, with further options, output in files beside the folder."""
    folder.mkdir(exist_ok=True)
    running = []
    for words in subject.start(folder):
        descriptor, name = tempfile.mkstemp(suffix=".txt", dir=folder.parent)
        with os.fdopen(descriptor, "wb") as log:
            process = subprocess.Popen([*words, *options], env=environment(), cwd=folder, stdout=log, stderr=log)
        running.append(Running(process, Path(name)))
    return running


ENDLESS = ("--max-update", "1000000", "--total-num-update", "1000000")


def two_runs(inputs: Path, folder: Path) -> str:
    """The second training in a save-dir is refused; the first one goes on, and its checkpoint is whole."""
    subject = pretraining("", inputs, str(inputs / "a"))
    first = started(subject, folder / "run", *ENDLESS)
    try:
        wait_for(folder / "run", "checkpoint_last.pt", first[0].process)
        second = started(subject, folder / "run", *ENDLESS)[0]
        said = second.end()
        assert second.process.returncode != 0 and "Another training" in said.splitlines()[-1], said[-300:]
        assert first[0].process.poll() is None, first[0].log.read_text()[-300:]
        first[0].process.send_signal(signal.SIGTERM)
        output = first[0].end()
        assert first[0].process.returncode == 128 + signal.SIGTERM, output[-300:]
        assert loads(folder / "run" / "checkpoints" / "checkpoint_last.pt"), "the checkpoint is unreadable"
        return "ok"
    finally:
        stop(first)


def wait_for(folder: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    """Until a checkpoint is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "checkpoints" / name).exists():
        assert process.poll() is None, "the training ended too early"
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.01)


def lost_rank(number: int, inputs: Path, folder: Path) -> str:
    """SIGKILL of one of two ranks: the other one ends by itself, with an error, and the last checkpoint is whole."""
    subject = pretraining("", inputs, str(inputs / "a"), ranks=2)
    running = started(subject, folder / "run", *ENDLESS)
    try:
        wait_for(folder / "run", "checkpoint_last.pt", running[0].process)
        running[number].process.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        output = running[1 - number].end()
        assert running[1 - number].process.returncode != 0, output[-300:]
        assert loads(folder / "run" / "checkpoints" / "checkpoint_last.pt"), "the checkpoint is unreadable"
        return f"ok ({time.monotonic() - begun:.0f} s)"
    finally:
        stop(running)


def paused_rank(inputs: Path, folder: Path) -> str:
    """SIGSTOP of one of two ranks for ten seconds: the training ends as if nothing had been."""
    subject = pretraining("", inputs, str(inputs / "a"), ranks=2)
    whole = started(subject, folder / "whole")
    running: list[Running] = []
    try:
        outputs = [each.end() for each in whole]
        assert [each.process.returncode for each in whole] == [0, 0], outputs[0][-300:]
        running = started(subject, folder / "paused")
        wait_for(folder / "paused", "checkpoint_last.pt", running[0].process)
        running[1].process.send_signal(signal.SIGSTOP)
        time.sleep(10)
        assert running[0].process.poll() is None, "the other rank has ended without it"
        running[1].process.send_signal(signal.SIGCONT)
        outputs = [each.end() for each in running]
        assert [each.process.returncode for each in running] == [0, 0], outputs[0][-300:]
        assert subject.result(folder / "paused") == subject.result(folder / "whole"), "another end"
        return "ok"
    finally:
        stop([*whole, *running])


def stop(running: list[Running]) -> None:
    """Kill what still runs."""
    for each in running:
        each.process.kill()
        each.process.wait()


def run_environment(inputs: Path, folder: Path) -> Table:
    """All of the above."""
    table = Table(
        "Environment",
        ["ok", "skipped", "failed"],
        bad=["failed"],
        explanation="A full disk during a save, a read-only folder, two trainings in one folder, a killed rank, a "
        "rank that is stopped and goes on.",
    )
    parts: dict[str, Callable[[Path, Path], str]] = {
        "disk full during a save": full_disk,
        "read-only folder": read_only,
        "two trainings in one folder": two_runs,
        "rank 0 killed": lambda inputs, folder: lost_rank(0, inputs, folder),
        "rank 1 killed": lambda inputs, folder: lost_rank(1, inputs, folder),
        "rank 1 stopped for 10 s": paused_rank,
    }
    for name, part in parts.items():
        work = folder / name.replace(" ", "-")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            outcome = part(inputs, work)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            outcome = f"failed: {error}"
        table.add(name, "ok" if outcome.startswith("ok") else outcome.split(":")[0], outcome)
    return table
