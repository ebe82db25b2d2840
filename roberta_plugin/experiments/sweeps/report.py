"""The results of a sweep: table by cell, best cell, members of an ensemble; report.md and .json."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roberta_plugin import reports
from roberta_plugin.experiments.sweeps.grid import Grid
from roberta_plugin.launch.run_folder import Metric, RunFolder
from roberta_plugin.reports import markdown_table
from roberta_plugin.runs import DONE, FAILED


@dataclass(frozen=True, kw_only=True)
class CellResults:
    """A cell and the results of its finished runs; the numbers are None before the first one is done."""

    name: str
    values: dict[str, float]  # seed -> metric
    num_runs: int
    num_failed: int
    median: float | None
    smallest: float | None
    largest: float | None

    @property
    def is_complete(self) -> bool:
        """True if every seed has a result."""
        return len(self.values) == self.num_runs


def cell_results(grid: Grid, folders: Sequence[RunFolder]) -> list[CellResults]:
    """The cells in the order of the grid file."""
    return [_cell(name, [folder for folder in folders if folder.run.cell == name]) for name in grid.cells]


def _cell(name: str, folders: Sequence[RunFolder]) -> CellResults:
    results = {folder.run.seed: folder.result() for folder in folders}
    values = {seed: float(result["value"]) for seed, result in results.items() if result is not None}
    ordered = sorted(values.values())
    return CellResults(
        name=name,
        values=values,
        num_runs=len(folders),
        num_failed=sum(folder.state() == FAILED for folder in folders),
        median=statistics.median(ordered) if ordered else None,
        smallest=ordered[0] if ordered else None,
        largest=ordered[-1] if ordered else None,
    )


def best_cell(cells: Sequence[CellResults], metric: Metric) -> CellResults | None:
    """The cell with the best median, as the paper chooses (section 5.1); of equal ones the first.

    Incomplete cells are left out if another cell is complete: medians of fewer seeds are not comparable.
    """
    candidates = [cell for cell in cells if cell.is_complete] or [cell for cell in cells if cell.values]
    return metric.best(candidates, lambda cell: cell.median) if candidates else None


def ensemble(folders: Sequence[RunFolder], metric: Metric, *, size: int) -> list[dict[str, Any]]:
    """The `size` best runs of all cells, with their checkpoints: members to average, as for GLUE's test sets.

    The paper ensembles 5 to 7 models a task (section 5.1). Runs without a checkpoint are passed over.
    """
    candidates: list[dict[str, Any]] = []
    for folder in folders:
        result = folder.result()
        if result is not None and folder.has_weights():
            checkpoint = str(folder.chosen_checkpoint())
            candidates.append({"run": folder.run.name, "value": float(result["value"]), "checkpoint": checkpoint})
    candidates.sort(key=lambda member: member["value"], reverse=metric.goal == "max")
    return candidates[:size]


def write_report(
    grid: Grid, folders: Sequence[RunFolder], *, root: Path, ensemble_size: int, in_words: Callable[[str], str] = str
) -> dict[str, Any]:
    """Write report.md and report.json into `root`; return what report.json holds.

    `in_words` makes the reason of a failure the user's.
    """
    cells = cell_results(grid, folders)
    best = best_cell(cells, grid.metric)
    states = [folder.state() for folder in folders]
    facts = {
        "metric": asdict(grid.metric),
        "num_runs": len(folders),
        "states": {state: states.count(state) for state in sorted(set(states))},
        "cells": [asdict(cell) for cell in cells],
        "best_cell": best.name if best else None,
        "best_settings": next((dict(f.run.settings) for f in folders if best and f.run.cell == best.name), None),
        "ensemble": ensemble(folders, grid.metric, size=ensemble_size),
        "failures": {
            folder.run.name: {"reason": in_words(str(failure["reason"])), "attempts": failure["attempts"]}
            for folder in folders
            if folder.state() == FAILED and (failure := folder.failure())
        },
    }
    reports.write_report(root / "report", as_markdown(facts, grid, cells, best), facts)
    return facts


def as_markdown(facts: dict[str, Any], grid: Grid, cells: Sequence[CellResults], best: CellResults | None) -> str:
    """The report for people."""
    done = facts["states"].get(DONE, 0)
    parts = [
        f"# Sweep: {grid.path.stem}",
        f"{done} of {facts['num_runs']} runs done. Metric: {grid.metric}.",
        cell_table(cells, best),
    ]
    if best:
        partial = "" if best.is_complete else f", of {len(best.values)} of {best.num_runs} seeds so far"
        parts.append(f"Best setting by median: **{best.name}** ({_show(best.median)}{partial}).")
    if facts["ensemble"]:
        lines = [
            f"- {member['run']}: {_show(member['value'])}, `{member['checkpoint']}`" for member in facts["ensemble"]
        ]
        parts.append("## Members for an ensemble, best first\n\n" + "\n".join(lines))
    if facts["failures"]:
        lines = [
            f"- {name}, attempt {failure['attempts']}: {failure['reason']}"
            for name, failure in facts["failures"].items()
        ]
        parts.append("## Failed; the same command tries them again\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def cell_table(cells: Sequence[CellResults], best: CellResults | None) -> str:
    """A Markdown table, a cell a row."""
    rows = []
    for cell in cells:
        numbers = [_show(value) for value in (cell.median, cell.smallest, cell.largest)]
        name = f"**{cell.name}**" if cell is best else cell.name
        rows.append([name, *numbers, f"{len(cell.values)} of {cell.num_runs}", str(cell.num_failed)])
    return markdown_table(["setting", "median", "min", "max", "done", "failed"], rows)


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
