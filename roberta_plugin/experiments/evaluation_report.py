"""Evaluations -> results.md and .json beside the paper's numbers; report.md and plots where there are details.

The details (`benchmark.Benchmark.details`), which only some benchmarks have, are confidence intervals, a table of the
labels and the confusion matrix. With them comes a plot of loss and metric by update: has the model learned enough, or
too much?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roberta_plugin.experiments.evaluation import PREFIX, Evaluation, shown
from roberta_plugin.experiments.sweeps.grid import Metric
from roberta_plugin.experiments.sweeps.report import markdown_table
from roberta_plugin.experiments.sweeps.run import RunFolder
from roberta_plugin.files import atomic_write, files_below, write_text
from roberta_plugin.finetuning.benchmarks import TASKS, benchmark_of
from roberta_plugin.json_files import write_json
from roberta_plugin.pictures import drawable, picture
from roberta_plugin.training.log import Curve, curve

REPORT = "report.md"
LEARNING_CURVE = "learning_curve.png"
RELIABILITY = "reliability_{}.png"
_MOST_LABELS = 40  # in a plot with readable numbers
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
    """The metric of a constant answer."""
    tf_idf: float | None
    """That of TF-IDF with logistic regression."""
    paper: dict[str, float]
    """Row of the paper's table -> its number for this metric."""
    precision: str
    """Of the models' products."""


def find_evaluations(folders: Sequence[Path]) -> list[Evaluation]:
    """All evaluations in and below the folders, in the order of the tasks.

    Raises:
        ValueError: if a file is not an evaluation.
    """
    paths = files_below(folders, f"{PREFIX}*.json")
    if not paths:
        raise FileNotFoundError(
            f"No {PREFIX}SPLIT.json in {', '.join(map(str, folders))}: run `roberta finetune` or `roberta evaluate` "
            "first."
        )
    return sorted(map(Evaluation.read, paths), key=lambda each: (TASKS.index(each.task), each.split))


def rows_of(evaluations: Sequence[Evaluation]) -> Iterator[MetricRow]:
    """One row per metric; evaluations without labels have none."""
    for evaluation in evaluations:
        paper = benchmark_of(evaluation.task).paper.get(evaluation.split, {})
        for metric, median in evaluation.median.items():
            if metric.endswith(("thresh", "threshold", "temperature")):  # no metrics
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
                tf_idf=evaluation.tf_idf.get(metric),
                paper={name: numbers[metric] for name, numbers in paper.items() if metric in numbers},
                precision=evaluation.precision,
            )


def as_markdown(rows: Sequence[MetricRow]) -> str:
    """The table as Markdown; the paper's numbers are those of its own models and data."""
    papers = list(dict.fromkeys(name for row in rows for name in row.paper))
    if not rows:
        return "There are no metrics: none of the evaluated splits has labels.\n"
    has_words = any(row.tf_idf is not None for row in rows)
    beside = ["baseline", *(["TF-IDF"] if has_words else [])]
    head = ["task", "split", "metric", "median", "min to max", "runs", "ensemble", *beside, *papers]
    table = []
    for row in rows:
        median, smallest, largest, ensemble = (
            shown(row.metric, value) for value in (row.median, row.smallest, row.largest, row.ensemble)
        )
        numbers = [median, f"{smallest} to {largest}", str(row.num_members), ensemble]
        baselines = (row.baseline, row.tf_idf)[: len(beside)]
        numbers += ["" if value is None else shown(row.metric, value) for value in baselines]
        numbers += [f"{row.paper[name]:.1f}" if name in row.paper else "" for name in papers]
        table.append([row.task, row.split, row.metric, *numbers])
    return markdown_table(head, table) + "\n"


def write_report(evaluations: Sequence[Evaluation], folder: Path) -> str:
    """Write results.md and results.json into a folder; return the table, and below it what was cut or is of no use,
    and a precision other than fp32.

    The rows of each type of entities are in the files only. With details of the evaluations, report.md and
    further plots are written too.
    """
    rows = list(rows_of(evaluations))
    lower = [each for each in evaluations if each.precision != "fp32"]
    remarks = [f"- {each.task}, {each.split}: the models computed in {each.precision}.\n" for each in lower]
    remarks += [f"- {each.task}, {remark}\n" for each in evaluations for remark in each.remarks]
    table = "\n".join([as_markdown(rows), *filter(None, ["".join(dict.fromkeys(remarks))])])
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "results.md", table)
    write_json(folder / "results.json", [row._asdict() for row in rows])
    write_details(evaluations, folder, table=table)
    chosen = {each.selection for each in evaluations}
    short = [row for row in rows if row.metric in chosen or not row.metric.startswith(_OF_A_TYPE)]
    if len(short) == len(rows):
        return table
    return table.replace(
        as_markdown(rows), f"{as_markdown(short)}\nThe rows of each type are in {folder / 'results.md'}.\n"
    )


def write_details(evaluations: Sequence[Evaluation], folder: Path, *, table: str) -> Path | None:
    """Write report.md, and a plot of each confusion matrix; return its path, or None if there are no details."""
    detailed = [evaluation for evaluation in evaluations if evaluation.details]
    if not detailed:
        return None
    for evaluation in detailed:
        confusion = evaluation.details.get("confusion")
        if confusion and len(confusion["labels"]) <= _MOST_LABELS:
            with atomic_write(folder / _plot_name(evaluation)) as file:
                plot_confusion(confusion["labels"], np.array(confusion["counts"]), file, title=evaluation.split)
        if calibration := evaluation.details.get("calibration"):
            with atomic_write(folder / RELIABILITY.format(evaluation.split)) as file:
                plot_reliability(calibration, file, title=evaluation.split)
    parts = [f"# {detailed[0].task}: {Path(*Path(detailed[0].data).parts[-2:])}", table.rstrip()]
    if (folder / LEARNING_CURVE).is_file():
        parts.append(f"![loss and metric by update]({LEARNING_CURVE})")
    for evaluation in detailed:
        parts += _section(evaluation, has_plot=(folder / _plot_name(evaluation)).is_file())
    path = folder / REPORT
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def _section(evaluation: Evaluation, *, has_plot: bool) -> Iterator[str]:
    details = evaluation.details
    yield f"## {evaluation.split}: {details['num_examples']:,} examples"
    yield _metrics(evaluation)
    if "threshold" in evaluation.ensemble:
        yield f"Threshold: a probability of {evaluation.ensemble['threshold']:g}."
    if calibration := details.get("calibration"):
        yield _calibration(evaluation, calibration)
        yield f"![accuracy by probability]({RELIABILITY.format(evaluation.split)})"
    if details.get("classes"):
        rows = [
            [row["label"], *(_percent(row[name]) for name in ("precision", "recall", "f1")), f"{row['support']:,}"]
            for row in details["classes"]
        ]
        yield markdown_table(["label", "precision", "recall", "F1", "examples"], rows)
    if details.get("confusion") and has_plot:
        yield f"![right and predicted labels]({_plot_name(evaluation)})"
    if details.get("hardest"):
        yield "The highest losses, of wrong labels or hard texts:"
        rows = [
            [*(str(row[name]) for name in ("id", "line", "text", "label", "prediction")), f"{row['loss']:.4g}"]
            for row in details["hardest"]
        ]
        yield markdown_table(["id", "line", "text", "label", "predicted", "loss"], rows)


def _calibration(evaluation: Evaluation, calibration: Mapping[str, Any]) -> str:
    """The expected calibration error, and with a temperature what it does."""
    before, after = calibration["before"], calibration.get("after")
    sentence = f"Expected calibration error {before['ece']:.1f} %, loss {before['loss']:.4f} nats"
    if after is None:
        return f"{sentence}; `--calibrate` would fit a temperature."
    return (
        f"{sentence}; with the temperature {calibration['temperature']:.3g}, which the probabilities above and in the "
        f"predictions have, {after['ece']:.1f} % and {after['loss']:.4f} nats."
        + (" It was fitted on these examples." if evaluation.split == "valid" else "")
    )


def _metrics(evaluation: Evaluation) -> str:
    """Metrics of the ensemble (of the model, if there is one), with their intervals."""
    intervals: Mapping[str, Sequence[float]] = evaluation.details["intervals"]
    beside = {"baseline": evaluation.details.get("baseline") or {}, "TF-IDF": evaluation.tf_idf}
    beside = {name: numbers for name, numbers in beside.items() if numbers}
    of_what = "ensemble" if len(evaluation.members) > 1 else "model"
    rows = [
        [
            name,
            shown(name, evaluation.ensemble[name]),
            f"{shown(name, low)} to {shown(name, high)}",
            *(shown(name, numbers[name]) if name in numbers else "" for numbers in beside.values()),
        ]
        for name, (low, high) in intervals.items()
    ]
    rows += [[name, _percent(None), "", *[""] * len(beside)] for name in evaluation.details.get("not_measured", ())]
    return markdown_table(["metric", of_what, "95 % interval", *beside], rows)


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f}"


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


def plot_reliability(calibration: Mapping[str, Any], file: Any, *, title: str) -> None:
    """Draw how often the predicted label is right, by its probability, as a PNG; the area of a dot is its examples."""
    with picture(file, width=4.2, height=4.0) as figure:
        axes = figure.add_subplot()
        axes.plot([0, 100], [0, 100], color="grey", linewidth=1, linestyle="--")
        for name, label in (("before", "as trained"), ("after", "with the temperature")):
            if found := calibration.get(name):
                sure, right, number = (
                    [each[key] for each in found["bins"]] for key in ("probability", "accuracy", "examples")
                )
                sizes = [12 + 200 * each / sum(number) for each in number]
                axes.plot(sure, right, linewidth=1)
                axes.scatter(sure, right, sizes, label=f"{label}: error {found['ece']:.1f} %", alpha=0.7)
        axes.set_xlabel("probability of the predicted label (percent)")
        axes.set_ylabel("how often it is right (percent)")
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)


def write_learning_curve(runs: Sequence[RunFolder], metric: Metric, folder: Path, *, is_regression: bool) -> None:
    """Write learning_curve.png: the losses in training and validation, and the metric of the validations, per seed."""
    curves: dict[str, tuple[Curve, Curve, Curve]] = {}
    for run in runs:
        if lines := run.log_lines():
            wanted = (("train", "loss"), ("valid", "loss"), ("valid", metric.value))
            train, valid, values = (curve(lines, kind=kind, value=value) for kind, value in wanted)
            curves[f"seed {run.run.seed}"] = (train, valid, values)
    if any(curve.updates for of_seed in curves.values() for curve in of_seed):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / LEARNING_CURVE) as file:
            plot_learning_curve(curves, metric.value, file, is_regression=is_regression)


def plot_learning_curve(
    curves: Mapping[str, tuple[Curve, Curve, Curve]], metric: str, file: Any, *, is_regression: bool
) -> None:
    """Draw the curves as a PNG: losses on the left, the metric on the right.

    The logs of fine-tuning have nats; the plot has bits, as all of pretraining. Regression has squared errors.
    """
    unit = 1.0 if is_regression else math.log(2)
    with picture(file, width=9.0, height=3.8) as figure:
        losses, metrics = figure.subplots(1, 2)
        for number, (name, (train, valid, values)) in enumerate(curves.items()):
            color = f"C{number % 10}"
            dots: dict[str, Any] = {"marker": "o", "markersize": 3}
            for kind, losses_of_kind, style in (("training", train, {"linestyle": "--"}), ("validation", valid, dots)):
                bits = [value / unit for value in losses_of_kind.values]
                losses.plot(losses_of_kind.updates, bits, color=color, label=f"{name}, {kind}", **style)
            metrics.plot(values.updates, values.values, color=color, label=name, **dots)
        of_loss = "loss (mean squared error)" if is_regression else "loss (bits per example)"
        of_metric = metric if metric in ("loss", "mae", "rmse") else f"{metric} (percent)"
        for axes, label in ((losses, of_loss), (metrics, of_metric)):
            axes.set_xlabel("updates")
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
