"""The logs of some runs -> a plot of loss and metric by update: has the model learned enough, or too much?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.sweeps.grid import Metric
from roberta_plugin.experiments.sweeps.run import RunFolder
from roberta_plugin.files import atomic_write
from roberta_plugin.training.log import Curve, curve

PLOT = "learning_curve.png"


def write_learning_curve(runs: Sequence[RunFolder], metric: Metric, folder: Path, *, in_bits: bool = True) -> None:
    """Write learning_curve.png: the losses in training and validation, and the metric of the validations, per seed.

    Args:
        runs: with a log.
        metric: of the validations.
        folder: where to write.
        in_bits: whether the loss is a cross-entropy, which the log has in nats; else it is a squared error.
    """
    curves: dict[str, tuple[Curve, Curve, Curve]] = {}
    for run in runs:
        log = run.path / "log.txt"
        if log.is_file():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            wanted = (("train", "loss"), ("valid", "loss"), ("valid", metric.value))
            train, valid, values = (curve(lines, kind=kind, value=value) for kind, value in wanted)
            scale = 1 / math.log(2) if in_bits else 1.0
            train, valid = (Curve(each.updates, [scale * value for value in each.values]) for each in (train, valid))
            curves[f"seed {run.run.seed}"] = (train, valid, values)
    if any(curve.updates for found in curves.values() for curve in found):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / PLOT) as file:
            plot(curves, metric.value, file, loss="loss (bits)" if in_bits else "loss (squared error)")


def plot(curves: dict[str, tuple[Curve, Curve, Curve]], metric: str, file: Any, *, loss: str) -> None:
    """Draw the curves as a PNG: losses on the left, the metric on the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    losses, metrics = figure.subplots(1, 2)
    for number, (name, (train, valid, values)) in enumerate(curves.items()):
        color = f"C{number % 10}"
        losses.plot(train.updates, train.values, color=color, linestyle="--", label=f"{name}, training")
        losses.plot(valid.updates, valid.values, color=color, marker="o", markersize=3, label=f"{name}, validation")
        metrics.plot(values.updates, values.values, color=color, marker="o", markersize=3, label=name)
    unit = {"loss": "as in the log", "mae": "units of the label", "rmse": "units of the label"}.get(metric, "%")
    for axes, label in ((losses, loss), (metrics, f"{metric} ({unit})")):
        axes.set_xlabel("updates")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(file, format="png")
