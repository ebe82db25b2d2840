"""Evaluations of a benchmark's tasks -> a table beside the paper's numbers: Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from roberta_plugin.experiments.baseline import shown
from roberta_plugin.experiments.evaluation import PREFIX, Evaluation
from roberta_plugin.experiments.evaluation_details import write_details
from roberta_plugin.files import atomic_write, files_below
from roberta_plugin.finetuning.benchmarks import TASKS, benchmark_of

_OF_A_TYPE = ("f1_", "precision_", "recall_")  # of entities: three rows each


class MetricRow(NamedTuple):
    """One metric of one evaluation."""

    task: str
    split: str
    metric: str
    median: float
    smallest: float
    largest: float
    num_members: int
    ensemble: float
    baseline: float | None
    """Of a constant answer."""
    paper: dict[str, float]
    """Row of the paper's table -> its number for this metric."""


def find_evaluations(folders: Sequence[Path]) -> list[Evaluation]:
    """All evaluations in and below the folders, in the order of the tasks.

    Raises:
        FileNotFoundError: if there are none, or a folder does not exist.
        ValueError: if a file is not an evaluation.
    """
    paths = files_below(folders, f"{PREFIX}*.json")
    if not paths:
        raise FileNotFoundError(
            f"No {PREFIX}SPLIT.json in {', '.join(map(str, folders))}: run `roberta finetune` or `roberta evaluate` "
            "first."
        )
    return sorted(map(Evaluation.read, paths), key=lambda found: (TASKS.index(found.task), found.split))


def rows_of(evaluations: Sequence[Evaluation]) -> Iterator[MetricRow]:
    """One row per metric; evaluations without labels have none."""
    for evaluation in evaluations:
        paper = benchmark_of(evaluation.task).PAPER.get(evaluation.task, {}).get(evaluation.split, {})
        for metric, median in evaluation.median.items():
            if metric.endswith(("thresh", "threshold")):  # a threshold is not a metric
                continue
            values = [member["metrics"][metric] for member in evaluation.members]
            yield MetricRow(
                task=evaluation.task,
                split=evaluation.split,
                metric=metric,
                median=median,
                smallest=min(values),
                largest=max(values),
                num_members=len(values),
                ensemble=evaluation.ensemble[metric],
                baseline=evaluation.baseline.get(metric),
                paper={name: numbers[metric] for name, numbers in paper.items() if metric in numbers},
            )


def as_markdown(rows: Sequence[MetricRow]) -> str:
    """The table as Markdown; the paper's numbers are those of its own models and data."""
    papers = list(dict.fromkeys(name for row in rows for name in row.paper))
    if not rows:
        return "There are no metrics: none of the evaluated splits has labels.\n"
    head = ["task", "split", "metric", "median", "min to max", "runs", "ensemble", "baseline", *papers]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        median, smallest, largest, ensemble = (
            shown(row.metric, value) for value in (row.median, row.smallest, row.largest, row.ensemble)
        )
        baseline = "" if row.baseline is None else shown(row.metric, row.baseline)
        numbers = [median, f"{smallest} to {largest}", str(row.num_members), ensemble, baseline]
        beside = [f"{row.paper[name]:.1f}" if name in row.paper else "" for name in papers]
        lines.append(f"| {' | '.join([row.task, row.split, row.metric, *numbers, *beside])} |")
    return "\n".join(lines) + "\n"


def write_report(evaluations: Sequence[Evaluation], folder: Path) -> str:
    """Write results.md and results.json into a folder; return the table, and below it what was cut or is of no use.

    The rows of each type of entities are in the files only. With details of the evaluations (`evaluation_details`),
    report.md and further plots are written too.
    """
    rows = list(rows_of(evaluations))
    remarks = [f"- {found.task}, {remark}\n" for found in evaluations for remark in found.remarks]
    table = "\n".join([as_markdown(rows), *filter(None, ["".join(dict.fromkeys(remarks))])])
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "results.md", "w") as file:
        file.write(table)
    with atomic_write(folder / "results.json", "w") as file:
        file.write(json.dumps([row._asdict() for row in rows], indent=2) + "\n")
    write_details(evaluations, folder, table=table)
    short = [row for row in rows if not row.metric.startswith(_OF_A_TYPE)]
    if len(short) == len(rows):
        return table
    return table.replace(
        as_markdown(rows), f"{as_markdown(short)}\nThe rows of each type are in {folder / 'results.md'}.\n"
    )
