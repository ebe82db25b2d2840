"""Counts of what happened, as a table."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.harness import machine
from tests.conftest import REPOSITORY

RESULTS = Path(__file__).parent / "results"


class Table:
    """A row per subject, a column per outcome, and every bad case in words below."""

    def __init__(self, title: str, outcomes: Sequence[str], *, bad: Sequence[str], explanation: str) -> None:
        self.title, self.outcomes, self.bad, self.explanation = title, list(outcomes), set(bad), explanation
        self.counts: dict[str, Counter[str]] = {}
        self.cases: list[str] = []
        self.notes: list[str] = []
        self.seconds = 0.0
        self.origin = ""

    def add(self, subject: str, outcome: str, case: str = "", number: int = 1) -> None:
        """Count one case; `case` is kept where the outcome is bad."""
        assert outcome in self.outcomes, outcome
        self.counts.setdefault(subject, Counter())[outcome] += number
        line = " ".join(f"{subject}: {outcome}: {case}".replace(f"{REPOSITORY}/", "").split())
        if outcome in self.bad:
            self.cases.append(line)
        print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)

    def total(self, outcome: str) -> int:
        """Cases of all subjects with this outcome."""
        return sum(counts[outcome] for counts in self.counts.values())

    def markdown(self) -> str:
        """The section of the report."""
        lines = [f"## {self.title}", "", self.explanation, "", f"{self.origin}.", ""]
        lines += [f"| | {' | '.join(self.outcomes)} |", "| --- " * (len(self.outcomes) + 1) + "|"]
        for subject, counts in self.counts.items():
            lines.append(f"| {subject} | {' | '.join(str(counts[outcome]) for outcome in self.outcomes)} |")
        totals = " | ".join(str(self.total(outcome)) for outcome in self.outcomes)
        lines += [f"| **all** | {totals} |", "", f"{self.seconds:,.0f} seconds.", ""]
        if self.notes:
            lines += [*(f"- {note}" for note in self.notes), ""]
        if self.cases:
            lines += ["Bad cases:", "", *(f"- {case}" for case in self.cases), ""]
        return "\n".join(lines)


def joined(tables: Sequence[Table]) -> Table:
    """The tables of processes that have shared the subjects of a part."""
    table = tables[0]
    for other in tables[1:]:
        for subject, counts in other.counts.items():
            table.counts.setdefault(subject, Counter()).update(counts)
        table.cases += other.cases
        table.notes += other.notes
        table.seconds = max(table.seconds, other.seconds)
    return table


def timed(part: Callable[[], Table]) -> Table:
    """Run a part of the campaign and note how long it took."""
    start = time.monotonic()
    table = part()
    table.seconds = time.monotonic() - start
    return table


def revision() -> str:
    """The commit of the code that runs; says so if files have changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RESULTS.relative_to(REPOSITORY)}")
    return f"commit {git('rev-parse', '--short', 'HEAD')}{' with changes' if changed else ''}"


def report(tables: Sequence[Table], *, command: str, hardware: str, write: bool) -> str:
    """The whole report; with `write` also as a file of results/, where parts that were not run now stay as they are."""
    now = datetime.now(UTC)
    path = RESULTS / f"campaign_{hardware}_{now:%Y%m}.md"
    for table in tables:
        table.origin = f"{now:%Y-%m-%d %H:%M} UTC, `{command}`, {revision()}"
    sections = {f"## {table.title}": table.markdown() for table in tables}
    head = f"# Fault-injection campaign\n\nMachine: {machine()}.\n\n"
    if write and path.exists():
        _, *earlier = re.split(r"^(?=## )", path.read_text(), flags=re.MULTILINE)
        sections = {section.splitlines()[0]: section.rstrip() + "\n" for section in earlier} | sections
    text = (head + "\n".join(sections.values())).rstrip() + "\n"
    if write:
        RESULTS.mkdir(exist_ok=True)
        path.write_text(text)
    return text
