"""Details of evaluations -> report.md: confidence intervals, a table of the labels, the confusion matrix as a plot.

What the details are is said in `benchmarks.Benchmark.details`; only some benchmarks have any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.experiments.baseline import shown
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.learning_curve import PLOT as LEARNING_CURVE
from roberta_plugin.files import atomic_write
from roberta_plugin.pictures import drawable, picture

REPORT = "report.md"
_MOST_LABELS = 40  # of a plot whose numbers can be read


def write_details(evaluations: Sequence[Evaluation], folder: Path, *, table: str) -> Path | None:
    """Write report.md, and a plot of each confusion matrix; return its path, or None if there are no details.

    Args:
        evaluations: of some splits.
        folder: where to write.
        table: the table of all metrics, which comes first.
    """
    detailed = [evaluation for evaluation in evaluations if evaluation.details]
    if not detailed:
        return None
    for evaluation in detailed:
        confusion = evaluation.details.get("confusion")
        if confusion and len(confusion["labels"]) <= _MOST_LABELS:
            with atomic_write(folder / _plot_name(evaluation)) as file:
                plot_confusion(confusion["labels"], np.array(confusion["counts"]), file, title=evaluation.split)
    parts = [f"# {detailed[0].task}: {Path(*Path(detailed[0].data).parts[-2:])}", table.rstrip()]
    if (folder / LEARNING_CURVE).is_file():
        parts.append(f"![loss and metric by update]({LEARNING_CURVE})")
    for evaluation in detailed:
        parts += _section(evaluation, has_plot=(folder / _plot_name(evaluation)).is_file())
    path = folder / REPORT
    with atomic_write(path, "w") as file:
        file.write("\n\n".join(parts) + "\n")
    return path


def _section(evaluation: Evaluation, *, has_plot: bool) -> Iterator[str]:
    details = evaluation.details
    yield f"## {evaluation.split}: {details['num_examples']:,} examples"
    yield _metrics(evaluation)
    if "threshold" in evaluation.ensemble:
        yield f"Threshold: a probability of {evaluation.ensemble['threshold']:g}."
    if details.get("classes"):
        rows = [
            [row["label"], *(_percent(row[name]) for name in ("precision", "recall", "f1")), f"{row['support']:,}"]
            for row in details["classes"]
        ]
        yield _table(["label", "precision", "recall", "F1", "examples"], rows)
    if details.get("confusion") and has_plot:
        yield f"![right and predicted labels]({_plot_name(evaluation)})"


def _metrics(evaluation: Evaluation) -> str:
    """Metrics of the ensemble (of the model, if there is one), with their intervals."""
    intervals: Mapping[str, Sequence[float]] = evaluation.details["intervals"]
    baseline: Mapping[str, float] = evaluation.details.get("baseline") or {}
    of_what = "ensemble" if len(evaluation.members) > 1 else "model"
    rows = [
        [
            name,
            shown(name, evaluation.ensemble[name]),
            f"{shown(name, low)} to {shown(name, high)}",
            *_baseline(name, baseline),
        ]
        for name, (low, high) in intervals.items()
    ]
    rows += [
        [name, _percent(None), "", *([""] if baseline else [])] for name in evaluation.details.get("not_measured", ())
    ]
    return _table(["metric", of_what, "95 % interval", *(["baseline"] if baseline else [])], rows)


def _baseline(name: str, baseline: Mapping[str, float]) -> list[str]:
    return [shown(name, baseline[name])] if baseline else []


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; a label may hold any character."""
    lines = [head, ["---"] * len(head), *([_escaped(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def _plot_name(evaluation: Evaluation) -> str:
    return f"confusion_{evaluation.split}.png"


def plot_confusion(labels: Sequence[str], counts: Any, file: Any, *, title: str) -> None:
    """Draw counts (C, C) as a PNG: a row per right label, coloured by its shares, a column per predicted one."""
    size = max(4.0, 1.5 + 0.45 * len(labels))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # (C, C)
    names = [drawable(label if len(label) <= 24 else label[:21] + "...") for label in labels]
    with picture(file, width=size, height=size) as figure:
        axes = figure.add_subplot()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for row, column in np.ndindex(*counts.shape):
            color = "white" if shares[row, column] > 0.6 else "black"
            axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", color=color, fontsize=7)
        axes.set_xticks(range(len(labels)), names, rotation=45, ha="right", fontsize=7)
        axes.set_yticks(range(len(labels)), names, fontsize=7)
        axes.set_xlabel("predicted (examples)")
        axes.set_ylabel("right (examples)")
        axes.set_title(title, fontsize=9)
