"""A full disk, a read-only folder, two runs in one folder, a killed or stopped rank: an end that says why, in time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
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


def started(subject: Subject, folder: Path) -> list[subprocess.Popen[str]]:
    """The subject's processes, output captured."""
    folder.mkdir(exist_ok=True)
    return [
        subprocess.Popen(
            words, env=environment(), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for words in subject.start(folder)
    ]


def two_runs(inputs: Path, folder: Path) -> str:
    """The second training in a save-dir is refused, the first one ends well."""
    subject = pretraining("", inputs, str(inputs / "a"))
    first = started(subject, folder / "run")[0]
    wait_for(folder / "run", "checkpoint_last.pt", first)
    second = started(subject, folder / "run")[0]
    said = second.communicate(timeout=PATIENCE_S)[0]
    output = first.communicate(timeout=PATIENCE_S)[0]
    assert first.returncode == 0, output[-300:]
    assert second.returncode != 0 or "max_update" in said, said[-300:]  # or it came when the first had finished
    assert loads(folder / "run" / "checkpoints" / "checkpoint_last.pt")
    return "ok"


def wait_for(folder: Path, name: str, process: subprocess.Popen[str]) -> None:
    """Until a checkpoint is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "checkpoints" / name).exists():
        assert process.poll() is None, "the training ended too early"
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.01)


def lost_rank(number: int, inputs: Path, folder: Path) -> str:
    """SIGKILL of one of two ranks: the other one ends by itself."""
    subject = pretraining("", inputs, str(inputs / "a"), "--encoder-layers", "4", ranks=2)
    processes = started(subject, folder / f"run-{number}")
    try:
        wait_for(folder / f"run-{number}", "checkpoint_last.pt", processes[0])
        processes[number].send_signal(signal.SIGKILL)
        begun = time.monotonic()
        output = processes[1 - number].communicate(timeout=PATIENCE_S)[0]
        assert processes[1 - number].returncode != 0 or "done training" in output, output[-300:]
        return f"ok ({time.monotonic() - begun:.0f} s)"
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()


def run_environment(inputs: Path, folder: Path) -> Table:
    """All of the above."""
    table = Table(
        "Environment",
        ["ok", "skipped", "failed"],
        bad=["failed"],
        explanation="A full disk during a save, a read-only folder, two trainings in one folder, a killed rank.",
    )
    parts: dict[str, Callable[[Path, Path], str]] = {
        "disk full during a save": full_disk,
        "read-only folder": read_only,
        "two trainings in one folder": two_runs,
        "rank 0 killed": lambda inputs, folder: lost_rank(0, inputs, folder),
        "rank 1 killed": lambda inputs, folder: lost_rank(1, inputs, folder),
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
