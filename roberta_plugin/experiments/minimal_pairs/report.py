"""Results of minimal pairs -> results.md and results.json beside the published numbers; the curve over updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.minimal_pairs.benchmarks import ALL, BENCHMARKS, Numbers
from roberta_plugin.experiments.minimal_pairs.evaluation import ModelResult, PairResults
from roberta_plugin.experiments.sweeps.report import markdown_table
from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.json_files import write_json
from roberta_plugin.pictures import drawable, picture

CURVE = "curve"
CHANCE = 50.0
_MOST_COLUMNS = 4  # of models; of more, the tables have the first and the last


def write_report(results: PairResults, folder: Path) -> str:
    """Write results.md and results.json, and of several checkpoints of one folder curve.png and curve.json.

    Returns:
        The table of the categories, and below it what is odd.
    """
    table = _table(results, [ALL, *dict.fromkeys(BENCHMARKS[results.benchmark].categories.values())])
    remarks = "".join(f"- {remark}\n" for remark in results.remarks)
    text = f"{_head(results)}\n\n{table}\n" + (f"\n{remarks}" if remarks else "")
    curve = [model for model in results.models if model.num_updates]
    parts = [f"# {BENCHMARKS[results.benchmark].title}", text.rstrip()]
    if len({model.num_updates for model in curve}) > 1 and len({Path(model.name).parent for model in curve}) == 1:
        write_curve(results, curve, folder)
        parts.append(f"![pairs right by update]({CURVE}.png)")
    parts += ["## Paradigms", _table(results, list(BENCHMARKS[results.benchmark].categories))]
    write_text(folder / "results.md", "\n\n".join(parts) + "\n")
    write_json(folder / "results.json", asdict(results))
    return text


def _head(results: PairResults) -> str:
    of_each = f" (the first {results.limit:,} of each paradigm)" if results.limit else ""
    precision = "" if results.precision == "fp32" else f" in {results.precision}"
    return (
        f"{BENCHMARKS[results.benchmark].title}, {results.num_pairs:,} pairs{of_each}, scored by {results.method}"
        f"{precision}: "
        f"pairs right in percent. Ties count as wrong; guessing gives {CHANCE:g}."
    )


def _table(results: PairResults, rows: Sequence[str]) -> str:
    shown = list(results.models)
    if len(shown) > _MOST_COLUMNS:
        shown = [shown[0], shown[-1]]
    columns: list[tuple[str, Numbers]] = list(zip(_names(shown), (model.numbers for model in shown), strict=True))
    columns += [(name, numbers) for name, numbers in results.published.items() if any(row in numbers for row in rows)]
    cells = [[row, *(_percent(numbers.get(row)) for _, numbers in columns)] for row in rows]
    return markdown_table(["", *(name for name, _ in columns)], cells)


def _names(models: Sequence[ModelResult]) -> list[str]:
    """Such as `base/checkpoint_best.pt, 8,000 updates`; with more folders where two models would be called the same."""
    paths = [Path(model.name).parts for model in models]
    num_parts = 2
    while len({parts[-num_parts:] for parts in paths}) < len(set(paths)):
        num_parts += 1
    updates = [f", {model.num_updates:,} updates" if model.num_updates else "" for model in models]
    return ["/".join(parts[-num_parts:]) + text for parts, text in zip(paths, updates, strict=True)]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def write_curve(results: PairResults, models: Sequence[ModelResult], folder: Path) -> None:
    """Write curve.png and curve.json: the percentage of each category, and of all, against updates."""
    points = {model.num_updates: model.numbers for model in models}  # of equal updates, one
    names = [ALL, *dict.fromkeys(BENCHMARKS[results.benchmark].categories.values())]
    curves = {name: [numbers[name] for numbers in points.values()] for name in names}
    content = {name: getattr(results, name) for name in ("benchmark", "method", "limit", "precision")}
    write_json(folder / f"{CURVE}.json", {**content, "updates": list(points), "percent_right": curves})
    with atomic_write(folder / f"{CURVE}.png") as file:
        plot_curve(list(points), curves, file, title=_head(results).split(":")[0])


def plot_curve(updates: Sequence[int], curves: dict[str, list[float]], file: Any, *, title: str) -> None:
    """Draw the curves as a PNG, the labels beside their ends."""
    with picture(file, width=9.0, height=5.0) as figure:
        axes = figure.add_subplot()
        axes.axhline(CHANCE, color="grey", linestyle=":", label="guessing")
        for number, (name, values) in enumerate(curves.items()):
            style = {"color": "black", "linewidth": 2.5} if name == ALL else {"color": f"C{(number - 1) % 10}"}
            if number > 10:
                style["linestyle"] = "--"
            axes.plot(updates, values, label=f"{drawable(name)} {values[-1]:.1f}", marker="o", markersize=3, **style)
        axes.set_xlabel("updates")
        axes.set_ylabel("pairs right (percent)")
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", fontsize=7)
