"""How benchmarks report: medians of both sides of one run, their ratio, and the machine they ran on."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

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


class Report:
    """Markdown that is printed and, on demand, written to results/<theme>_<hardware>_<yyyymm>.md."""

    def __init__(self, theme: str, title: str, description: str, hardware: str) -> None:
        now = datetime.now(UTC)
        self.path = RESULTS / f"{theme}_{now:%Y%m}.md"
        module = Path(sys.argv[0]).stem
        command = " ".join(["python -m", f"tests.benchmarks.{module}", *sys.argv[1:]])
        self.lines = [
            f"# {title}",
            "",
            description.strip(),
            "",
            f"Machine: {hardware}.",
            "",
            f"Command: `{command}`",
            "",
        ]

    def table(
        self,
        title: str,
        seconds: dict[str, list[float]],
        *,
        baseline: str,
        amount: float,
        unit: str,
        order: str = "sides in turn",
    ) -> None:
        """One row a side: median, spread, amount a second, and how many times the baseline's speed that is."""
        self.lines += [f"## {title}", "", f"| side | median s | min-max s | {unit}/s | x {baseline} |"]
        self.lines += ["| --- " * 5 + "|"]
        reference = statistics.median(seconds[baseline])
        for side, values in seconds.items():
            median = statistics.median(values)
            spread = f"{min(values):.4g}-{max(values):.4g}"
            speed = amount / median
            shown = f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
            self.lines.append(f"| {side} | {median:.4g} | {spread} | {shown} | {reference / median:.2f} |")
        self.lines += ["", f"Medians of {len(next(iter(seconds.values())))}, {order}.", ""]

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
