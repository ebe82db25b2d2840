"""A full disk, a read-only folder, a closed terminal, ranks and data-loader workers that are killed or stopped.

What can go on ends as if nothing had been; all else ends in time and says why.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.campaign.outcome import Table
from tests.campaign.subjects import OUTPUT, Subject, pretraining
from tests.tiny_corpus import command, environment, run, train_command

PATIENCE_S = 240.0


def full_disk(inputs: Path, folder: Path) -> str:
    """A tmpfs with room for one checkpoint, of 12 MB, and no more: an error that names the file, and the old one whole."""
    disk = folder / "disk"
    if not mounted(disk, "size=20m"):
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
    if not mounted(target, "ro"):
        return "skipped: no read-only file system can be mounted here"
    try:
        words = ["--train", str(inputs / "small.txt"), "--tokenizer", str(inputs / "tokenizer"), "--no-progress"]
        done = run([*command("roberta"), "binarize", *words, OUTPUT, str(target / "bin")])
        assert done.returncode == 2 and str(target) in done.stderr and "Traceback" not in done.stderr, done.stderr
        for path in (target / "save", target):  # to be made, and there already
            done = run(
                [
                    *(*train_command(inputs / "a", folder / "save"), "--max-update=1", "--total-num-update=1"),
                    *("--save-dir", str(path)),
                ]
            )
            said = f"--save-dir {path}: {target} cannot be written to"
            assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
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


def started(subject: Subject, folder: Path) -> list[Running]:
    """The subject's processes, with their output in files beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    running = []
    for words in subject.start(folder):
        descriptor, name = tempfile.mkstemp(suffix=".txt", dir=folder.parent)
        with os.fdopen(descriptor, "wb") as log:
            process = subprocess.Popen(words, env=environment(), cwd=folder, stdout=log, stderr=log)
        running.append(Running(process, Path(name)))
    return running


def wait_for(folder: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    """Until a checkpoint is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "checkpoints" / name).exists():
        assert process.poll() is None, "the training ended too early"
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.01)


@contextmanager
def disturbed(subject: Subject, folder: Path) -> Iterator[list[Running]]:
    """A training at its first checkpoint, to be disturbed in `folder`: it must end as an undisturbed one does.

    Its processes may be replaced in the list by others, which then have to end so.
    """
    running = started(subject, folder.parent / "whole")
    try:
        end_well(running)
        running[:] = started(subject, folder)
        wait_for(folder, "checkpoint_last.pt", running[0].process)
        yield running
        end_well(running)
        assert subject.result(folder) == subject.result(folder.parent / "whole"), "another end"
    finally:
        stop(running)


def end_well(running: list[Running]) -> None:
    """Wait until all processes have succeeded."""
    outputs = [each.end() for each in running]
    assert not any(each.process.returncode for each in running), outputs[0][-300:]


def paused_rank(inputs: Path, folder: Path) -> str:
    """SIGSTOP of one of two ranks for ten seconds: the training ends as if nothing had been."""
    with disturbed(pretraining("", inputs, str(inputs / "a"), ranks=2), folder / "paused") as running:
        running[1].process.send_signal(signal.SIGSTOP)
        time.sleep(10)
        assert running[0].process.poll() is None, "the other rank has ended without it"
        running[1].process.send_signal(signal.SIGCONT)
    return "ok"


WORKERS = ("--num-workers", "2")


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Its data-loader workers: forks, with its own command line."""
    own = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    found = []
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            if Path(f"/proc/{child}/cmdline").read_bytes() == own:
                found.append(int(child))
    return found


def signal_worker(process: subprocess.Popen[bytes], number: signal.Signals) -> int | None:
    """Send a signal to one of its workers, if it has any; the worker."""
    for worker in workers_of(process):
        with suppress(ProcessLookupError):
            os.kill(worker, number)
            return worker
    return None


def killed_worker(inputs: Path, folder: Path) -> str:
    """SIGKILL of a data-loader worker: an error that names the worker, and the same command goes on to the same end."""
    subject = pretraining("", inputs, str(inputs / "a"), *WORKERS)
    with disturbed(subject, folder / "run") as running:
        killed = []
        while running[0].process.poll() is None:  # the workers of an epoch may have done all their work
            killed.append(signal_worker(running[0].process, signal.SIGKILL))
            time.sleep(0.2)
        output = running[0].end()
        assert running[0].process.returncode != 0, "no worker was killed before the training ended"
        named = [f"pid {worker}" in output or f"pid(s) {worker}" in output for worker in killed]
        assert any(named), output[-300:]
        running[:] = started(subject, folder / "run")
    return "ok"


def paused_worker(inputs: Path, folder: Path) -> str:
    """SIGSTOP of a data-loader worker for ten seconds: the training ends as if nothing had been."""
    with disturbed(pretraining("", inputs, str(inputs / "a"), *WORKERS), folder / "run") as running:
        worker = None
        while worker is None:
            assert running[0].process.poll() is None, "no worker was stopped before the training ended"
            worker = signal_worker(running[0].process, signal.SIGSTOP)
        time.sleep(10)
        os.kill(worker, signal.SIGCONT)
    return "ok"


def hung_up(inputs: Path, folder: Path) -> str:
    """A terminal that is closed saves a checkpoint, and the same command goes on; under nohup it changes nothing."""
    subject = pretraining("", inputs, str(inputs / "a"))
    with at_hang_up(signal.SIG_DFL), disturbed(subject, folder / "run") as running:
        running[0].process.send_signal(signal.SIGHUP)
        output = running[0].end()
        assert running[0].process.returncode == 128 + signal.SIGHUP, output[-300:]
        assert "Stopped by SIGHUP after update" in output, output[-300:]
        running[:] = started(subject, folder / "run")
    with at_hang_up(signal.SIG_IGN), disturbed(subject, folder / "nohup" / "run") as running:
        running[0].process.send_signal(signal.SIGHUP)
    return "ok"


@contextmanager
def at_hang_up(action: signal.Handlers) -> Iterator[None]:
    """Commands started meanwhile inherit what to do at SIGHUP: nohup lets them ignore it."""
    before = signal.signal(signal.SIGHUP, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def full_disk_while_preparing(inputs: Path, folder: Path) -> str:
    """`roberta prepare` on a disk of every size up to what it needs: an error that names it, and nothing is left."""
    disk = folder / "disk"
    words = ["--raw", str(inputs / "glue" / "SST-2"), "--tokenizer", str(inputs / "tokenizer"), "--max-length", "128"]
    failures = 0
    for size in (16, 24, 40, 64, 96, 128, 192, 256, 384, 1024):
        if not mounted(disk, f"size={size}k"):
            return "skipped: no tmpfs can be mounted here"
        try:
            done = run([*command("roberta"), "prepare", "SST-2", *words, OUTPUT, str(disk / "data")])
            if done.returncode == 0:
                assert failures >= 3, f"only {failures} sizes were too small"
                return f"ok ({failures} sizes too small)"
            failures += 1
            assert "No space left" in done.stderr and "Traceback" not in done.stderr, done.stderr[-300:]
            assert str(disk) in done.stderr, f"the disk is not named: {done.stderr[-300:]}"
            assert not list(disk.iterdir()), f"left: {sorted(disk.rglob('*'))}"
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    raise AssertionError("a megabyte was not enough")


def mounted(disk: Path, options: str) -> bool:
    """Make a folder a tmpfs of its own; False where that is not allowed."""
    disk.mkdir(exist_ok=True)
    return (
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True).returncode == 0
    )


def stop(running: list[Running]) -> None:
    """Kill what still runs."""
    for each in running:
        each.process.kill()
        each.process.wait()


def run_environment(inputs: Path, folder: Path, *, only: str = "") -> Table:
    """All of the above whose name has `only` in it."""
    table = Table(
        "Environment",
        ["ok", "skipped", "failed"],
        bad=["failed"],
        explanation="A disk that is full, a read-only folder, a closed terminal; ranks and data-loader workers that are "
        "killed, or stopped and go on.",
    )
    parts: dict[str, Callable[[Path, Path], str]] = {
        "disk full during a save": full_disk,
        "disk full while preparing": full_disk_while_preparing,
        "read-only folder": read_only,
        "rank 1 stopped for 10 s": paused_rank,
        "closed terminal, without and with nohup": hung_up,
        "data-loader worker killed": killed_worker,
        "data-loader worker stopped for 10 s": paused_worker,
    }
    for name, part in ((name, part) for name, part in parts.items() if only in name):
        work = folder / name.replace(" ", "-").replace(",", "")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            outcome = part(inputs, work)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            outcome = f"failed: {error}"
        table.add(name, "ok" if outcome.startswith("ok") else outcome.split(":")[0], outcome)
    return table
