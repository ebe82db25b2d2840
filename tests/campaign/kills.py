"""SIGKILL at random moments and while files are being written, until the command ends: the end must be the same.

After every kill each checkpoint that a start would take is read: it must be whole, and that of an uninterrupted run.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import select
import shutil
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.forks import preload, start_command
from tests.campaign.outcome import Table
from tests.campaign.subjects import Subject, checkpoints_below, state_of

TIMEOUT_S = 600.0
KILLS_OF_A_RUN = 6  # then it may end, and is compared
LONGEST_WRITE_S = 0.03  # a kill comes at most so long after the write that it waits for
KEEP = "--keep-interval-updates"
LAST = "checkpoint_last"  # half of the kills while writing wait for it: the older one is lost in the shortest time
SYNCED = "synced.txt"  # what was synced since the folder was made, a line each


class Writes:
    """Writes below a folder, by inotify: of whatever name, in place or not."""

    # create | modify | moved to
    _MASK = 0x100 | 0x2 | 0x80
    _IS_FOLDER = 0x40000000

    def __init__(self, folder: Path, within: str) -> None:
        """Watch the folders below `folder` that have `within` in their paths; files of `folder` itself are logs."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._file >= 0, os.strerror(ctypes.get_errno())
        self._root, self._within = folder, within
        self._folders: dict[int, Path] = {}
        self._watch(folder)

    def _watch(self, folder: Path) -> None:
        number = self._libc.inotify_add_watch(self._file, os.fsencode(folder), self._MASK)
        if number >= 0:  # else it has gone again
            self._folders[number] = folder
            for below in folder.iterdir():
                if below.is_dir() and below.name not in ("snapshots", ".snapshots"):
                    self._watch(below)

    def seen(self, timeout: float, name_part: str = "") -> bool:
        """Wait for a write until `timeout` seconds have passed; whether a file with `name_part` was written."""
        if not select.select([self._file], [], [], timeout)[0]:
            return False
        data, found = os.read(self._file, 2**16), False
        while data:
            number, mask, _, length = struct.unpack_from("iIII", data)
            name = data[16 : 16 + length].rstrip(b"\0").decode()
            folder = self._folders.get(number, self._root)
            if mask & self._IS_FOLDER and (folder / name).is_dir() and name not in ("snapshots", ".snapshots"):
                self._watch(folder / name)
            elif name_part in name and folder != self._root and self._within in str(folder.relative_to(self._root)):
                found = True
            data = data[16 + length :]
        return found

    def close(self) -> None:
        """Watch no more."""
        os.close(self._file)


@dataclass
class Ended:
    """How one start of a subject ended."""

    code: int | None  # None: killed by us
    seconds: float
    output: str
    was_writing: bool = False


def start(
    subject: Subject,
    folder: Path,
    *,
    delay: float | None,
    rng: random.Random,
    in_write: bool = False,
    keep: bool = False,
) -> Ended:
    """Start the subject's commands; after `delay` seconds kill them all, at a write if `in_write`."""
    commands = subject.start(folder)
    for words in commands if keep else []:
        if KEEP in words:
            words[words.index(KEEP) + 1] = "-1"
    logs = [folder / f"output-{number}.txt" for number in range(len(commands))]
    synced = folder / SYNCED if subject.forgets else None
    begun = time.monotonic()
    processes = [start_command(words, folder, log, synced=synced) for words, log in zip(commands, logs, strict=True)]
    writes, name_part = None, rng.choice(("", LAST)) if subject.writes == "checkpoints" else ""
    try:
        while any(process.poll() is None for process in processes):
            passed = time.monotonic() - begun
            if passed > TIMEOUT_S:
                return Ended(-1, passed, f"still running after {passed:.0f} s: {last_words(logs)}")
            if delay is None or passed < delay:
                time.sleep(0.01)
            elif not in_write:
                return Ended(None, passed, "")
            else:
                writes = writes or Writes(folder, subject.writes)
                if writes.seen(0.05, name_part):
                    time.sleep(rng.uniform(0, LONGEST_WRITE_S))
                    if any(process.poll() is None for process in processes):
                        return Ended(None, passed, "", was_writing=True)
    finally:
        for process in processes:
            process.kill()
        if writes is not None:
            writes.close()
    code = next((process.returncode for process in processes if process.returncode), 0)
    return Ended(code, time.monotonic() - begun, last_words(logs))


def last_words(logs: Sequence[Path]) -> str:
    """The ends of the outputs."""
    return " | ".join(log.read_text(errors="replace")[-500:] for log in logs)


def cut_power(folder: Path) -> None:
    """What a power failure leaves: of files that have changed since they were synced, the first half."""
    lines = (folder / SYNCED).read_text().splitlines() if (folder / SYNCED).exists() else []
    synced = {tuple(json.loads(line)) for line in lines}
    for path in (folder / "checkpoints").glob("*"):
        about = path.stat()
        if path.suffix == ".pt" and (about.st_ino, about.st_size, about.st_mtime_ns) not in synced:
            os.truncate(path, about.st_size // 2)


def look(subject: Subject, folder: Path, known: Mapping[int, Any], table: Table, case: str) -> None:
    """Read every checkpoint that a start would take, and compare it with an uninterrupted run's of as many updates.

    The last one must be there from the second save on.
    """
    paths = checkpoints_below(folder)
    for parent in {path.parent for path in paths}:
        numbered = [path.name for path in paths if path.parent == parent and path.name.count("_") == 2]
        if len(numbered) > 1 and not (parent / f"{LAST}.pt").exists():
            table.add(subject.name, "lost checkpoint", f"{case}: {LAST}.pt is gone, and there are {numbered}")
    for path in paths:
        try:
            state = state_of(path)
        except Exception as error:  # damage raises nearly anything
            table.add(subject.name, "broken checkpoint", f"{case}: {path.name}: {type(error).__name__}: {error}"[:300])
            continue
        expected = known.get(state["updates"], state)
        outcome = "whole checkpoint" if state == expected else "other checkpoint"
        table.add(subject.name, outcome, f"{case}: {path.name}: {differences(expected, state)}")


def attack(
    subject: Subject, folder: Path, table: Table, *, num_kills: int, rng: random.Random, deadline: float = math.inf
) -> None:
    """One uninterrupted run, then runs that are killed up to `KILLS_OF_A_RUN` times each, `num_kills` in all.

    After the deadline a run that has been killed once may end. A run that ends before its last kill is compared, too,
    and the next one begins anew; one that ends before its first kill is compared, but not counted as the same end.
    """
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir(parents=True)
    reference = start(subject, whole, delay=None, rng=rng, keep=True)
    if reference.code != 0:
        table.add(subject.name, "failed", f"uninterrupted: {reference.output}")
        return
    expected = subject.result(whole)
    is_trained = (whole / "checkpoints").is_dir()
    known = {state["updates"]: state for state in map(state_of, checkpoints_below(whole))} if is_trained else {}
    left, num_bad = num_kills, len(table.cases)
    while left == num_kills or (left > 0 and time.monotonic() < deadline):
        killed.mkdir()
        kills = 0
        while True:
            # The last start of a run is left alone.
            is_last = kills >= min(left, KILLS_OF_A_RUN) or (kills and time.monotonic() > deadline)
            delay = None if is_last else rng.uniform(0.2, 0.8) * reference.seconds
            ended = start(subject, killed, delay=delay, rng=rng, in_write=kills % 2 == 0)
            if ended.code is not None:
                break
            kills += 1
            how = "killed while writing" if ended.was_writing else "killed"
            if subject.forgets and kills % 3 == 2:
                how = "power cut"
                cut_power(killed)
            table.add(subject.name, how, f"{ended.seconds:.1f} s")
            look(subject, killed, known, table, f"{how} after {ended.seconds:.1f} s")
            if len(table.cases) > num_bad:  # what comes after tells nothing new
                return
        left -= max(kills, 1)
        if ended.code != 0:
            table.add(subject.name, "hang" if ended.code == -1 else "failed", f"after {kills} kills: {ended.output}")
            return
        found = subject.result(killed)
        if found != expected or kills:
            outcome = "same end" if found == expected else "other end"
            table.add(subject.name, outcome, f"after {kills} kills: {differences(expected, found)}")
        remaining = sorted({path.name for pattern in subject.leaves for path in killed.glob(pattern)})
        if remaining:
            table.add(subject.name, "leftovers", f"after {kills} kills: {remaining}")
        if len(table.cases) > num_bad:
            return
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
    bad = ["broken checkpoint", "other checkpoint", "lost checkpoint", "other end", "failed", "hang", "leftovers"]
    table = Table(
        "Kills",
        ["killed", "killed while writing", "power cut", "whole checkpoint", "same end", *bad],
        bad=bad,
        explanation="Each command runs in a fork of a process that has imported everything. SIGKILL of the whole process "
        "group at random moments, every second one up to 30 ms after a write, of whatever name; the same command again, "
        f"until it ends after {KILLS_OF_A_RUN} kills at most. *Power cut*: after the kill, files that were not synced "
        "lose their second half. After each kill every checkpoint that a start would take is read: *whole* if its "
        "checksums are right and all parameters and the optimizer's state are those of an uninterrupted run of as many "
        "updates. *Lost*: no checkpoint_last.pt, although two saves were made. The end is compared bit by bit: parameters, optimizer state, files, results.",
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
