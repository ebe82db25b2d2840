"""What all benchmarks share: their options, sides that take turns, processes of their own, and the report.

A benchmark measures both sides in one run, and its report has their ratio, the machine and the command that makes it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "ve-fairseq", "transformers", "tokenizers")


def machine() -> str:
    """Processor, cores, memory and versions, in one line each."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GB memory; Python {platform.python_version()}, {versions}"


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser of the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    return parser


def load(when: str) -> str:
    """A sentence on what else the machine does."""
    return f"Load average at the {when}: {os.getloadavg()[0]:.1f}."


def seconds_of(call: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """How long a call takes, by the clock on the wall or by another one."""
    started = clock()
    call()
    return clock() - started


def in_turn(
    sides: Mapping[str, Callable[[], object]], rounds: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each side in each round: a change of the machine's speed meets all of them."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, call in sides.items():
            seconds[side].append(seconds_of(call, clock=clock))
    return seconds


def apart(program: str, *words: object, timeout: float | None = None, **variables: str) -> dict[str, Any]:
    """The line of JSON that a program (its source) prints last, run in a process of its own.

    Raises:
        RuntimeError: with the last line of its errors, if it ends otherwise.
    """
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"exit code {done.returncode}: {said}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def known(path: Path) -> list[dict[str, Any]]:
    """The lines of JSON in a file that grows with each result; none if there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, result: dict[str, Any]) -> None:
    """Print a result, and add it to such a file."""
    print(json.dumps(result), flush=True)
    with open(path, "a") as out:
        out.write(json.dumps(result) + "\n")


class Report:
    """Markdown that is printed and, on demand, written to results/<theme>_<hardware>_<yyyymm>.md."""

    def __init__(self, theme: str, title: str, description: str | None, hardware: str = "") -> None:
        self.path = RESULTS / f"{theme}_{datetime.now(UTC):%Y%m}.md"
        command = " ".join(["python -m", f"tests.benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
        self.lines: list[str] = []
        for line in (
            f"# {title}",
            (description or "").strip(),
            f"Machine: {hardware or machine()}.",
            f"Command: `{command}`",
        ):
            self.text(line)

    def table(self, title: str, seconds: dict[str, list[float]], *, baseline: str, amount: float, unit: str) -> None:
        """One row a side: median, spread, amount a second, and how many times the baseline's speed that is."""
        reference = statistics.median(seconds[baseline])
        rows = []
        for side, values in seconds.items():
            median = statistics.median(values)
            speed = amount / median
            shown = f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
            spread = f"{min(values):.4g}-{max(values):.4g}"
            rows.append((side, f"{median:.4g}", spread, shown, f"{reference / median:.2f}"))
        self.rows(("side", "median s", "min-max s", f"{unit}/s", f"x {baseline}"), rows, title=title)
        self.text(f"Medians of {len(next(iter(seconds.values())))}, sides in turn.")

    def rows(
        self, head: Iterable[object], rows: Iterable[Iterable[object]], *, title: str = "", texts: int = 0
    ) -> None:
        """A table of any form; with `texts`, the columns after so many are numbers, which stand on the right."""
        head = [*head]
        if title:
            self.text(f"## {title}")
        bars = ["---:" if texts and place >= texts else "---" for place in range(len(head))]
        self.lines += [f"| {' | '.join(map(str, row))} |" for row in (head, bars, *rows)]
        self.lines.append("")

    def text(self, line: str) -> None:
        """A sentence of its own."""
        self.lines += [line, ""]

    def show(self, *, write: bool) -> None:
        """Print the report, and write it where asked."""
        text = "\n".join(self.lines)
        print(text)
        if write:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(text.rstrip() + "\n")
