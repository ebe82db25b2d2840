"""Options of `roberta export --to onnx`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class OnnxOptions(Checked):
    """Options of `roberta export`."""

    if TYPE_CHECKING:  # `roberta export` has this option for all formats
        to: str

    int8_sample: Path | None = setting(
        None,
        "onnx: also write a model with 8-bit weights, and measure the difference on the lines of this text file",
        flag="--int8",
        metavar="TEXT",
        goes_with={"to": ("onnx",)},
    )
