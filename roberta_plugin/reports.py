"""Reports: a table in Markdown, the two files of a report, a plot of curves as a PNG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.json_files import write_json


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, whose cells may hold any character; without a line end after its last row."""
    lines = [[_escaped(value) for value in row] for row in (head, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], ["---"] * len(head), *lines[1:]))


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def write_report(path: Path, markdown: str, facts: object) -> None:
    """Write a report for people, PATH.md, and for programs, PATH.json."""
    write_json(path.with_name(f"{path.name}.json"), facts)
    write_text(path.with_name(f"{path.name}.md"), markdown)


_LEVELS = ("--", ":", "-.")


class Line(NamedTuple):
    """A curve."""

    x: Sequence[float]
    y: Sequence[float]
    style: Mapping[str, Any] = {}  # arguments of matplotlib's `plot`: label, color, marker ..


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One of the diagrams of a plot, which lie one below the other and share the horizontal axis."""

    y_label: str
    lines: Sequence[Line]
    levels: Mapping[str, float] = field(default_factory=dict)
    """Label -> height of a grey line from side to side, dashed, dotted and both in turn."""
    height: float = 1.0  # relative to the other panels


def plot(path: Path, panels: Sequence[Panel], *, x_label: str, width: float, height: float) -> None:
    """Draw curves into a PNG file, by matplotlib without a display; a legend names the lines that have a label.

    Width and height are in inches, of 120 dots each. Equal values give equal files.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    ratios = [panel.height for panel in panels]
    column = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    for axes, panel in zip(column, panels, strict=True):
        for line in panel.lines:
            style = dict(line.style)
            if style.get("label"):
                style["label"] = drawable(style["label"])
            axes.plot(line.x, line.y, **{"linewidth": 1.0, **style})
        for number, (label, value) in enumerate(panel.levels.items()):
            axes.axhline(value, color="#777777", linestyle=_LEVELS[number % 3], linewidth=1, label=drawable(label))
        axes.set_ylabel(panel.y_label)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    column[-1].set_xlabel(x_label)
    with atomic_write(path) as file:
        figure.savefig(file, format="png")


def drawable(text: str) -> str:
    """A label that matplotlib can draw: `$` literally, and characters missing from its font as code points.

    Example:
        drawable("\\u65e5 for $5")  ->  "U+65E5 for \\\\$5"
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    characters = (one if one.isspace() or font.get_char_index(ord(one)) else f"U+{ord(one):04X}" for one in text)
    return "".join(characters).replace("$", r"\$")
