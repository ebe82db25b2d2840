"""Damaged files against every command that reads them: a clear error, or the same result; nothing else will do."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import math
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from backports import zstd

from roberta_plugin.launch.run_folder import Status, write_status
from tests.campaign.entries import SIZES, Entry, roberta
from tests.campaign.forks import CRASH, HANG, Outcome, in_child, preload
from tests.campaign.outcome import Table
from tests.campaign.subjects import OUTPUT, grid_content, must
from tests.tiny_corpus import command, environment
from tests.tiny_squad import write_raw


def truncated(data: bytes, rng: random.Random) -> bytes:
    """The file's first part."""
    return data[: rng.randrange(max(1, len(data)))]


def flipped(data: bytes, rng: random.Random) -> bytes:
    """One bit inverted."""
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def zeroed(data: bytes, rng: random.Random) -> bytes:
    """A stretch of zeros, as a crashed file system leaves."""
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.randint(1, 4096))
    return data[:start] + bytes(length) + data[start + length :]


def replaced(data: bytes, rng: random.Random) -> bytes:
    """Another kind of file under this name."""
    return rng.choice(
        [b"<html><body>404</body></html>\n", b"[]\n", b"{}\n", bytes(rng.randbytes(len(data))), b"\x1f\x8b"]
    )


def emptied(data: bytes, rng: random.Random) -> bytes:
    """Zero bytes."""
    return b""


def swapped(data: bytes, rng: random.Random) -> bytes:
    """Two stretches of equal length exchanged: the size stays."""
    if len(data) < 8:
        return data[::-1]
    length = rng.randint(1, min(256, len(data) // 2))
    a = rng.randrange(len(data) // 2 - length + 1)
    b = rng.randrange(len(data) // 2, len(data) - length + 1)
    return data[:a] + data[b : b + length] + data[a + length : b] + data[a : a + length] + data[b + length :]


Mutation = Callable[[bytes, random.Random], bytes]
MUTATIONS: Sequence[Mutation] = (truncated, flipped, zeroed, replaced, emptied, swapped)


def write_inputs(inputs: Path) -> None:
    """The folders of all entries, beside those of `subjects.write_inputs`."""
    if (inputs / "corruption").exists():
        return
    raw, tokenizer = inputs / "glue" / "SST-2", inputs / "tokenizer"
    words = ["--raw", str(raw), "--tokenizer", str(tokenizer), "--max-length", "64"]
    must([*command("roberta"), "prepare", "SST-2", *words, OUTPUT, str(inputs / "prepared")])
    options = ["--cpu", "--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction", *SIZES]
    options += ["--arch", "fast_roberta_tiny", "--batch-size", "16", "--optimizer", "roberta_adamw", "--lr", "1e-3"]
    options += ["--user-dir", "roberta_plugin", "--max-update", "10", "--save-dir", str(inputs / "tuned")]
    must([*command("fairseq-train"), str(inputs / "prepared"), *options])
    shutil.copy(inputs / "tuned" / "checkpoint_last.pt", inputs / "tuned.pt")
    shutil.copytree(inputs / "tokenizer", inputs / "hub")
    shutil.copy(inputs / "pretrained" / "checkpoint_last.pt", inputs / "hub")
    shutil.copytree(inputs / "tokenizer", inputs / "tokenizer-for-text")
    write_raw(inputs / "squad")
    text = (inputs / "small.txt").read_bytes()
    (inputs / "text").mkdir()
    (inputs / "text" / "a.txt.gz").write_bytes(gzip.compress(text))
    (inputs / "text" / "a.txt.xz").write_bytes(lzma.compress(text))
    (inputs / "text" / "a.txt.zst").write_bytes(
        zstd.compress(text, options={zstd.CompressionParameter.checksum_flag: 1})
    )
    lines = [json.dumps({"text": line}) for line in text.decode().splitlines()]
    (inputs / "text" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (inputs / "yaml").mkdir()
    grid = grid_content(inputs)
    (inputs / "yaml" / "grid.yaml").write_text(yaml.safe_dump(grid))
    recipe = {"output_dir": str(inputs / "launched"), "nodes": 1, "gpus_per_node": 2, "time": "1:00:00", "port": 29100}
    del grid["train"]["user-dir"]
    (inputs / "yaml" / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "train": grid["train"]}))
    shutil.copytree(inputs / "pretrained", inputs / "resumed" / "checkpoints")
    launch(inputs / "yaml" / "recipe.yaml", inputs)
    status = Status(
        job_id="7",
        attempt=0,
        phase="training",
        update=5,
        max_update=30,
        loss=2.5,
        tokens_per_second=9.0,
        updates_per_second=1.0,
        time=0.0,
    )
    write_status(inputs / "launched", status)
    (inputs / "corruption").touch()


def launch(recipe: Path, folder: Path) -> str:
    """`roberta launch` of a recipe with an sbatch that takes every job; what it says."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("sbatch", "squeue", "scontrol", "sacct", "sinfo"):
        said = "echo Submitted batch job 7" if name == "sbatch" else "exit 0"
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{said}\n")
        (folder / "bin" / name).chmod(0o755)
    variables = environment()
    variables["PATH"] = f"{folder / 'bin'}:{variables['PATH']}"
    words = [*command("roberta"), "launch", "--config", str(recipe)]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def judge(entry: Entry, victim: str, outcome: Outcome, *, expected: object, found: object, copy: Path) -> str:
    """What the command made of a damaged file."""
    if outcome.code == HANG:
        return "hang"
    if outcome.code == CRASH:
        return "crash"
    if outcome.code != 0:
        lines = [line for line in outcome.output.splitlines() if line.strip() and not line.startswith('  File "')]
        said = [*lines[-4:], *(line for line in lines if "fault:" in line)]
        # A .bin and its .idx are opened by their common prefix.
        names = {victim, str(copy / Path(victim).stem)} if Path(victim).suffix in (".bin", ".idx") else {victim}
        is_raw = entry.is_verb and any(line.startswith("Traceback") for line in lines)
        return "clear error" if not is_raw and any(name in line for name in names for line in said) else "obscure error"
    if entry.is_inspection and victim not in entry.without_checksums:
        return "silent"
    if found == expected:
        return "same result"
    if victim.endswith(".json") and not is_json(copy / victim):
        return "silent"
    if not entry.has_checksums or victim in entry.without_checksums:
        return "changed content"
    if not any((copy / name).exists() for name in ("manifest.json", "prepared.json")):
        return "silent"
    inspected = in_child(lambda: roberta("inspect", copy), copy.parent)
    return "changed, inspect says so" if inspected.code != 0 else "silent"


def is_json(path: Path) -> bool:
    """Whether a file is well-formed."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def turns_of(entries: Sequence[Entry], *, seed: int) -> list[tuple[Entry, str, Mutation]]:
    """Every file of every entry with every mutation, once.

    The entries take turns, so that the first few cases have all of them, each with another mutation and another file.
    One whose files are through begins again, at other places of them: a checkpoint is one file, and gets as many cases
    as forty files of prepared data.
    """
    queues = []
    for number, entry in enumerate(entries):
        rng = random.Random(f"{seed} {entry.name}")
        victims = rng.sample(list(entry.victims), len(entry.victims))
        # Along the diagonals of the table of files and mutations.
        queues.append(
            [
                (entry, victims[(turn + shift) % len(victims)], MUTATIONS[(number + turn) % len(MUTATIONS)])
                for shift in range(len(victims))
                for turn in range(len(MUTATIONS))
            ]
        )
    longest = max(map(len, queues))
    again = [itertools.cycle([turn for turn in queue if turn[2] is not emptied]) for queue in queues]
    filled = [
        [*queue, *itertools.islice(rest, longest - len(queue))] for queue, rest in zip(queues, again, strict=True)
    ]
    return [turn for turns in zip(*filled, strict=True) for turn in turns]


def run_corruption(
    entries: Sequence[Entry],
    folder: Path,
    *,
    cases: int,
    minutes: float = 0,
    seed: int = 0,
    share: tuple[int, int] = (0, 1),
    sound_runs: int = 2,
) -> Table:
    """Damage `cases` files, in the order of `turns_of`; fewer where `minutes` are over before.

    Of several processes, each with its `share` (number, of how many), one damages every so-manieth file. Sound input is read first, `sound_runs` times with the same result.
    """
    deadline = time.monotonic() + (60 * minutes or math.inf)
    preload()
    good = ["clear error", "same result", "changed content", "changed, inspect says so"]
    bad = ["obscure error", "silent", "hang", "crash"]
    table = Table(
        "Damaged input",
        [*good, *bad],
        bad=bad,
        explanation="Files truncated, with a flipped bit, a zeroed stretch, another kind of content, nothing, or two "
        "stretches exchanged. *Clear*: the last lines of the error name the file. *Changed content*: text and YAML "
        "that are still well-formed, where no checksum can tell.",
    )
    expected: dict[str, object] = {}
    for entry in entries:
        for _ in range(sound_runs):
            copy, out = fresh(folder, entry)
            outcome = in_child(lambda entry=entry, copy=copy, out=out: entry.main(copy, out), out)  # type: ignore[misc]
            assert outcome.code == 0, f"{entry.name} fails on sound input: {outcome.output[-2000:]}"
            found = entry.result(out, outcome.output)
            assert found, f"{entry.name} has no result to compare: {outcome.output[-2000:]}"
            assert expected.setdefault(entry.name, found) == found, f"{entry.name} differs between two runs: {found}"
    turns = turns_of(entries, seed=seed)
    for number in range(share[0], cases, share[1]):
        if time.monotonic() > deadline:
            break
        entry, victim, mutation = turns[number % len(turns)]
        copy, out = fresh(folder, entry)
        rng = random.Random(f"{seed} {number}")
        data = (copy / victim).read_bytes()
        damaged = mutation(data, rng) if data else b"x"
        while damaged == data:  # zeros instead of zeros, say
            damaged = flipped(data, rng)
        (copy / victim).write_bytes(damaged)
        outcome = in_child(lambda entry=entry, copy=copy, out=out: entry.main(copy, out), out)  # type: ignore[misc]
        found = entry.result(out, outcome.output) if outcome.code == 0 else None
        verdict = judge(entry, victim, outcome, expected=expected[entry.name], found=found, copy=copy)
        last = (outcome.output.strip().splitlines() or [""])[-1]
        table.add(entry.name, verdict, f"{victim} {mutation.__name__} (case {number}): {last[:160]}")
    shutil.rmtree(folder / "work", ignore_errors=True)
    return table


def fresh(folder: Path, entry: Entry) -> tuple[Path, Path]:
    """A copy of the entry's folder under the same name every time, and an empty folder beside it."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(entry.folder, work / "input")
    (work / "out").mkdir()
    if entry.folder.name == "text":
        shutil.copytree(entry.folder.parent / "tokenizer-for-text", work / "tokenizer-for-text")
    return work / "input", work / "out"
