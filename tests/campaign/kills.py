"""SIGKILL at random moments and while files are being written, until the command ends: the end must be the same."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.forks import preload, start_command
from tests.campaign.outcome import Table
from tests.campaign.subjects import Subject

TIMEOUT_S = 600.0
KILLS_OF_A_RUN = 6  # then it may end, and is compared


@dataclass
class Ended:
    """How one start of a subject ended."""

    code: int | None  # None: killed by us
    seconds: float
    output: str
    was_writing: bool = False


def start(subject: Subject, folder: Path, *, delay: float | None, in_write: bool = False) -> Ended:
    """Start the subject's commands; after `delay` seconds kill them all, at the next write if `in_write`."""
    before = set(folder.glob(subject.writes))
    commands = subject.start(folder)
    logs = [folder / f"output-{number}.txt" for number in range(len(commands))]
    processes = [start_command(words, folder, log) for words, log in zip(commands, logs, strict=True)]
    begun = time.monotonic()
    try:
        while any(process.poll() is None for process in processes):
            passed = time.monotonic() - begun
            if passed > TIMEOUT_S:
                return Ended(-1, passed, f"still running after {passed:.0f} s: {last_words(logs)}")
            if delay is not None and passed > delay:
                was_writing = bool(set(folder.glob(subject.writes)) - before)
                if not in_write or was_writing:
                    return Ended(None, passed, "", was_writing)
            time.sleep(0.001 if in_write else 0.01)
    finally:
        for process in processes:
            process.kill()
    code = next((process.returncode for process in processes if process.returncode), 0)
    return Ended(code, time.monotonic() - begun, last_words(logs))


def last_words(logs: Sequence[Path]) -> str:
    """The ends of the outputs."""
    return " | ".join(log.read_text(errors="replace")[-500:] for log in logs)


def attack(
    subject: Subject, folder: Path, table: Table, *, num_kills: int, rng: random.Random, deadline: float = math.inf
) -> None:
    """One uninterrupted run, then runs that are killed up to `KILLS_OF_A_RUN` times each, `num_kills` in all.

    After the deadline a run that has been killed once may end. A run that ends before its last kill is compared, too,
    and the next one begins anew; one that ends before its first kill is compared, but not counted as the same end.
    """
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir(parents=True)
    reference = start(subject, whole, delay=None)
    if reference.code != 0:
        table.add(subject.name, "failed", f"uninterrupted: {reference.output}")
        return
    expected = subject.result(whole)
    left = num_kills
    while left == num_kills or (left > 0 and time.monotonic() < deadline):
        killed.mkdir()
        kills = 0
        while True:
            # The last start of a run is left alone.
            is_last = kills >= min(left, KILLS_OF_A_RUN) or (kills and time.monotonic() > deadline)
            delay = None if is_last else rng.uniform(0.2, 0.8) * reference.seconds
            ended = start(subject, killed, delay=delay, in_write=kills % 2 == 1)
            if ended.code is not None:
                break
            kills += 1
            table.add(subject.name, "killed while writing" if ended.was_writing else "killed", f"{ended.seconds:.1f} s")
        left -= max(kills, 1)
        if ended.code != 0:
            table.add(subject.name, "hang" if ended.code == -1 else "failed", f"after {kills} kills: {ended.output}")
            return
        found = subject.result(killed)
        if found != expected or kills:
            outcome = "same end" if found == expected else "other end"
            table.add(subject.name, outcome, f"after {kills} kills: {differences(expected, found)}")
        remaining = sorted(path.name for path in killed.glob(subject.writes))
        if remaining:
            table.add(subject.name, "leftovers", f"after {kills} kills: {remaining}")
        shutil.rmtree(killed)
    shutil.rmtree(folder)


def differences(expected: Any, found: Any) -> str:
    """Where two results differ, in short."""
    if expected == found:
        return "no difference"
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [str(key) for key in {*expected, *found} if expected.get(key) != found.get(key)]
        return "differs in " + ", ".join(sorted(keys)[:6])
    return f"{str(expected)[:200]} / {str(found)[:200]}"


def run_kills(
    subjects: Sequence[Subject], folder: Path, *, kills_per_subject: int, minutes: float = 0, seed: int = 0
) -> Table:
    """Attack every subject, and again in further rounds until `minutes` are over."""
    table = Table(
        "Kills",
        ["killed", "killed while writing", "same end", "other end", "failed", "hang", "leftovers"],
        bad=["other end", "failed", "hang", "leftovers"],
        explanation="Each command runs in a fork of a process that has imported everything. SIGKILL of the whole process group at random moments, every second one while a file is being "
        f"written; the same command again, until it ends after {KILLS_OF_A_RUN} kills at most. The end is compared bit "
        "by bit with an uninterrupted run's: parameters, optimizer state, files, results.",
    )
    preload()
    deadline = time.monotonic() + (60 * minutes or math.inf)
    rng = random.Random(seed)
    number = 0
    while number == 0 or (minutes and time.monotonic() < deadline):
        for index, subject in enumerate(subjects):
            if number == 0 or time.monotonic() < deadline:
                work = folder / f"{number}-{index}"
                num_kills = kills_per_subject * subject.kills
                attack(subject, work, table, num_kills=num_kills, rng=rng, deadline=deadline)
        number += 1
    return table
