"""PNG files by matplotlib, without a display and without its warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def picture(file: Any, *, width: float, height: float) -> Iterator[Any]:
    """Open a matplotlib figure, which is written as a PNG when the block ends.

    Width and height are in inches, of 120 dots each.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    yield figure
    figure.savefig(file, format="png")


def drawable(text: str) -> str:
    """A label that matplotlib can draw: `$` literally, and characters missing from its font as code points.

    Example:
        drawable("\\u65e5 for $5")  ->  "U+65E5 for \\\\$5"
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    known = (one if one.isspace() or font.get_char_index(ord(one)) else f"U+{ord(one):04X}" for one in text)
    return "".join(known).replace("$", r"\$")
