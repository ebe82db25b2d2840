"""The logs of some runs -> a plot of loss and metric by update: has the model learned enough, or too much?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.sweeps.grid import Metric
from roberta_plugin.experiments.sweeps.run import RunFolder
from roberta_plugin.files import atomic_write
from roberta_plugin.pictures import picture
from roberta_plugin.training.log import Curve, curve

PLOT = "learning_curve.png"


def write_learning_curve(runs: Sequence[RunFolder], metric: Metric, folder: Path, *, is_regression: bool) -> None:
    """Write learning_curve.png: the losses in training and validation, and the metric of the validations, per seed."""
    curves: dict[str, tuple[Curve, Curve, Curve]] = {}
    for run in runs:
        log = run.path / "log.txt"
        if log.is_file():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            wanted = (("train", "loss"), ("valid", "loss"), ("valid", metric.value))
            train, valid, values = (curve(lines, kind=kind, value=value) for kind, value in wanted)
            curves[f"seed {run.run.seed}"] = (train, valid, values)
    if any(curve.updates for found in curves.values() for curve in found):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / PLOT) as file:
            plot(curves, metric.value, file, is_regression=is_regression)


def plot(curves: dict[str, tuple[Curve, Curve, Curve]], metric: str, file: Any, *, is_regression: bool) -> None:
    """Draw the curves as a PNG: losses on the left, the metric on the right.

    The logs of fine-tuning have nats; the plot has bits, as all of pretraining. Regression has squared errors.
    """
    unit = 1.0 if is_regression else math.log(2)
    with picture(file, width=9.0, height=3.8) as figure:
        losses, metrics = figure.subplots(1, 2)
        for number, (name, (train, valid, values)) in enumerate(curves.items()):
            color = f"C{number % 10}"
            losses.plot(
                train.updates,
                [value / unit for value in train.values],
                color=color,
                linestyle="--",
                label=f"{name}, training",
            )
            losses.plot(
                valid.updates,
                [value / unit for value in valid.values],
                color=color,
                marker="o",
                markersize=3,
                label=f"{name}, validation",
            )
            metrics.plot(values.updates, values.values, color=color, marker="o", markersize=3, label=name)
        of_loss = "loss (mean squared error)" if is_regression else "loss (bits per example)"
        of_metric = metric if metric in ("loss", "mae", "rmse") else f"{metric} (percent)"
        for axes, label in ((losses, of_loss), (metrics, of_metric)):
            axes.set_xlabel("updates")
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
