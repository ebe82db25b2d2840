"""Options of tasks in which phrases compete."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.options import TaskOptions, option

SIZES = ("xs", "s", "m", "l", "xl")  # sizes of WinoGrande's training set


@dataclass(frozen=True, kw_only=True)
class WinoGrandeOptions(TaskOptions):
    """Options of WinoGrande. WNLI and WSC have no options."""

    size: str | None = option("size of the training set (xl)", choices=SIZES, tasks=("WinoGrande",))
