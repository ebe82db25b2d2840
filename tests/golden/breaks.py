"""Each deliberate fault in a copy of the tree, its tests there, and which test notices; nothing else counts as noticed.

    python -m tests.golden breaks [--only NAME] [--write]

"moved": the code of the fault is no longer there as it was, so its line in `break_list` has to be rewritten. "failed":
the tests did not run, or the one that failed also fails in the sound tree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.conftest import REPOSITORY
from tests.golden.break_list import BREAKS, Break

TABLE = Path(__file__).parent / "breaks.md"
NOTICED, NOT_NOTICED, MOVED, FAILED = "noticed", "NOT NOTICED", "moved: rewrite this break", "failed"
TIMEOUT_S = 900
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - .*)?$", re.MULTILINE)
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)


def run_breaks(only: str, *, processes: int, write: bool) -> int:
    """Try the chosen breaks, print a row of each, with `write` replace their rows in breaks.md; 1 if one is bad."""
    chosen = [each for each in BREAKS if only in each.name]
    assert chosen, f"no break is called {only!r}"
    rows: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="golden-breaks-") as root:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(processes):
            trees.put(copied(Path(root) / str(number)))

        def attempt(each: Break) -> tuple[str, str]:
            tree = trees.get()
            try:
                return tried(each, tree)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(processes) as pool:
            for each, row in zip(chosen, pool.map(attempt, chosen), strict=True):
                rows[each.name] = row
                print(f"{each.name}: {': '.join(filter(None, row))}", flush=True)
                if write:
                    write_table(rows)
        sound = [test for outcome, test in rows.values() if outcome == NOTICED]
        for test in failures(trees.get(), sorted(set(sound))) if sound else ():
            for name, row in rows.items():
                if row == (NOTICED, test):
                    rows[name] = (FAILED, f"{test} fails in the sound tree, too")
                    print(f"{name}: {': '.join(rows[name])}")
    if write:
        write_table(rows)
    return int(any(outcome != NOTICED for outcome, _ in rows.values()))


def copied(tree: Path) -> Path:
    """A copy of the tree, without what git ignores."""
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.egg-info", "runs", "build")
    return Path(shutil.copytree(REPOSITORY, tree, ignore=ignored))


def broken_text(each: Break, tree: Path) -> str | None:
    """The file of a break with its fault; None if its code is not there, once."""
    path = tree / "roberta_plugin" / each.path
    text = path.read_text() if path.is_file() else ""
    return text.replace(each.before, each.after) if text.count(each.before) == 1 else None


def tried(each: Break, tree: Path) -> tuple[str, str]:
    """The outcome of a break, and the test that notices it, or what else happened; the tree is then as before."""
    path = tree / "roberta_plugin" / each.path
    if (broken := broken_text(each, tree)) is None:
        return MOVED, each.path
    tests = [test for test in each.guard if (tree / "tests" / test).exists()]
    if not tests:
        return MOVED, f"its tests, {', '.join(each.guard)}"
    sound, about = path.read_bytes(), path.stat()
    path.write_text(broken)
    try:
        found = failures(tree, tests)
    except subprocess.TimeoutExpired:
        return FAILED, f"not done after {TIMEOUT_S} s"
    except RuntimeError as error:
        return FAILED, str(error)
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))  # else Python would go on with the fault it compiled
    return (NOTICED, found[0]) if found else (NOT_NOTICED, f"by {', '.join(tests)}")


def failures(tree: Path, tests: Sequence[str]) -> list[str]:
    """The tests of a tree that fail; the first of each run of pytest ends it, unless single tests are named.

    Raises:
        RuntimeError: if pytest itself failed.
    """
    first = () if any("::" in test for test in tests) else ("-x",)
    words = [sys.executable, "-m", "pytest", "-q", *first, "--no-header", "--tb=no", "-p", "no:cacheprovider"]
    variables = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    variables.setdefault("ROBERTA_TEST_DATA", str(REPOSITORY.parent / "shared" / "data"))
    begun = time.time()
    done = subprocess.run(
        [*words, *(f"tests/{test}" for test in tests)],
        cwd=tree,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode not in (0, 1):
        collected = _FAILED.findall(done.stdout)  # a fault that keeps a module from being imported is noticed, too
        if not (done.returncode == 2 and collected):
            raise RuntimeError(
                f"pytest ended with {done.returncode} after {time.time() - begun:.0f} s: {done.stdout[-200:]}"
            )
    return _FAILED.findall(done.stdout)


def write_table(rows: dict[str, tuple[str, str]]) -> None:
    """Replace these rows of breaks.md; those of breaks that are not in the list any more are left out."""
    known = {name: (outcome, test) for name, outcome, test in _ROW.findall(TABLE.read_text())} if TABLE.exists() else {}
    known |= rows
    names = [each.name for each in BREAKS if each.name in known]
    outcomes = [known[name][0] for name in names]
    counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
    lines = [
        "# Deliberate faults",
        "",
        f"`python -m tests.golden breaks --write`: of {len(BREAKS)} faults {counts}.",
        "",
        "| fault | outcome | test |",
        "| --- | --- | --- |",
        *(f"| {name} | {' | '.join(each.replace('|', '/') for each in known[name])} |" for name in names),
    ]
    TABLE.write_text("\n".join(lines) + "\n")
