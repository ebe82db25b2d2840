"""SIGKILL at random moments and while files are being written, until the command ends: the end must be the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.outcome import Table
from tests.campaign.subjects import Subject
from tests.tiny_corpus import environment

TIMEOUT_S = 300.0


@dataclass
class Ended:
    """How one start of a subject ended."""

    code: int | None  # None: killed by us
    seconds: float
    output: str
    was_writing: bool = False


def start(subject: Subject, folder: Path, *, delay: float | None, in_write: bool = False) -> Ended:
    """Start the subject's commands; after `delay` seconds kill them all, at the next write if `in_write`."""
    log = folder / "output.txt"
    with log.open("w") as output:
        processes = [
            subprocess.Popen(words, env=environment(), cwd=folder, stdout=output, stderr=output, start_new_session=True)
            for words in subject.start(folder)
        ]
    begun = time.monotonic()
    was_writing = False
    try:
        while any(process.poll() is None for process in processes):
            passed = time.monotonic() - begun
            if passed > TIMEOUT_S:
                return Ended(-1, passed, "hangs: " + log.read_text()[-500:])
            if delay is not None and passed > delay:
                was_writing = any(folder.glob(subject.writes))
                if not in_write or was_writing or passed > 3 * delay:
                    return Ended(None, passed, "", was_writing)
            time.sleep(0.001 if in_write else 0.01)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    code = next((process.returncode for process in processes if process.returncode), 0)
    return Ended(code, time.monotonic() - begun, log.read_text()[-500:])


def attack(subject: Subject, folder: Path, table: Table, *, num_kills: int, rng: random.Random) -> None:
    """One uninterrupted run, and one that is killed `num_kills` times before it may end."""
    whole, killed = folder / "whole", folder / "killed"
    for each in (whole, killed):
        each.mkdir(parents=True)
    reference = start(subject, whole, delay=None)
    if reference.code != 0:
        table.add(subject.name, "failed", f"uninterrupted: {reference.output}")
        return
    expected = subject.result(whole)
    kills = 0
    while True:
        # Long enough for some progress at most starts; the command ends when it has been killed often enough.
        delay = rng.uniform(0.2, 1.1) * reference.seconds if kills < num_kills else None
        ended = start(subject, killed, delay=delay, in_write=kills % 2 == 1)
        if ended.code is None:
            kills += 1
            table.add(subject.name, "killed while writing" if ended.was_writing else "killed")
            continue
        if ended.code != 0:
            table.add(subject.name, "hang" if ended.code == -1 else "failed", f"after {kills} kills: {ended.output}")
            return
        break
    found = subject.result(killed)
    outcome = "same end" if found == expected else "other end"
    table.add(subject.name, outcome, f"after {kills} kills: {differences(expected, found)}")
    left = sorted(path.name for path in killed.glob(subject.writes))
    if left:
        table.add(subject.name, "leftovers", f"after {kills} kills: {left}")
    shutil.rmtree(folder)


def differences(expected: Any, found: Any) -> str:
    """Where two results differ, in short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [str(key) for key in {*expected, *found} if expected.get(key) != found.get(key)]
        return "differs in " + ", ".join(sorted(keys)[:6])
    return f"{str(expected)[:200]} / {str(found)[:200]}"


def run_kills(
    subjects: Sequence[Subject], folder: Path, *, kills_per_subject: int, rounds: int = 1, seed: int = 0
) -> Table:
    """Attack every subject `rounds` times."""
    table = Table(
        "Kills",
        ["killed", "killed while writing", "same end", "other end", "failed", "hang", "leftovers"],
        bad=["other end", "failed", "hang", "leftovers"],
        explanation="SIGKILL of the whole process group at random moments, every second one while a file is being "
        "written; the same command again, until it ends. The end is compared bit by bit with an uninterrupted run's: "
        "parameters, optimizer state, files, results.",
    )
    rng = random.Random(seed)
    for number in range(rounds):
        for index, subject in enumerate(subjects):
            attack(subject, folder / f"{number}-{index}", table, num_kills=kills_per_subject, rng=rng)
    return table
