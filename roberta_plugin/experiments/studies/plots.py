"""The plots of a study: loss curves of the variants, and each probe's values with their spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from roberta_plugin.experiments.studies.paper_tables import paper_row
from roberta_plugin.experiments.studies.settings import Probe, Study
from roberta_plugin.training.log import Curve


def draw_curves(file: Any, curves: Mapping[str, Sequence[Curve]], tokens_per_update: Mapping[str, float]) -> None:
    """Training loss against tokens, a colour for each variant and a line for each seed, as a PNG."""
    figure = _figure(7.0, 4.5)
    axes = figure.add_subplot()
    for number, (name, seeds) in enumerate(curves.items()):
        for seed, found in enumerate(seeds):
            tokens = [update * tokens_per_update[name] for update in found.updates]
            label = name if seed == 0 else None
            axes.plot(tokens, found.values, color=f"C{number}", alpha=0.8, linewidth=1.0, label=label)
    axes.set_xlabel("tokens")
    axes.set_ylabel("training loss in the log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(file, format="png")


def draw_bars(file: Any, values: Mapping[str, Mapping[str, Mapping[str, float]]], study: Study) -> None:
    """A panel for each probe: medians as bars, smallest to largest as error bars, seeds as points; a cross: the paper.

    Args:
        file: where the PNG is written.
        values: probe -> variant -> seed -> value.
        study: for the probes and the paper's rows.
    """
    probes = [probe for probe in study.probes if any(values[probe.name].values())]
    width = max(3.2, 1.2 + 0.7 * len(study.variants))
    figure = _figure(width * len(probes), 4.2)
    for place, probe in enumerate(probes):
        axes = figure.add_subplot(1, len(probes), place + 1)
        _draw_probe(axes, probe, values[probe.name], study)
    figure.savefig(file, format="png")


def _draw_probe(axes: Any, probe: Probe, values: Mapping[str, Mapping[str, float]], study: Study) -> None:
    names = [variant.name for variant in study.variants]
    points: list[float] = []
    for place, name in enumerate(names):
        seeds = list(values[name].values())
        if not seeds:
            continue
        median = statistics.median(seeds)
        spread = [[median - min(seeds)], [max(seeds) - median]]
        axes.bar(place, median, width=0.65, color="#8fb3d9", yerr=spread, ecolor="#1f4e8c", capsize=5)
        axes.scatter([place] * len(seeds), seeds, s=14, color="#1f4e8c", zorder=3)
        points += seeds
        paper = study.variant(name).paper
        number = paper_row(paper).get(probe.column) if paper else None
        if number is not None:
            axes.scatter([place], [number], marker="x", color="#b04a3a", zorder=3, label="paper")
            points.append(number)
    low, high = min(points), max(points)
    margin = 0.15 * (high - low) or 0.05 * abs(high) or 1.0
    floor = 0.0 if low >= 0 else -math.inf  # correlations may be negative
    axes.set_ylim(max(floor, low - margin), high + margin)  # differences are small beside the values
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.set_title(f"{probe.name} ({probe.better} is better)", fontsize=9)
    axes.grid(alpha=0.3, axis="y")
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles[:1], labels[:1], fontsize=7)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure
