"""`--lr-scheduler linear_stages`: straight lines of the learning rate between given updates.

One schedule for what has many names: warm-up, a constant rate, a decay (Hu et al. 2024, arXiv 2404.06395, "WSD"), and
rates that grow with the batch. The rate is a function of the number of updates alone, so any checkpoint may be
continued by other stages: a decay begins where its stage says.

    --lr 1e-3 --lr-stages "1000:1 9000:1 10000:0"     up to 1e-3 in 1,000 updates, constant, down to 0 from 9,000 on
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.settings import setting

_POINT = re.compile(r"(\d+):(\d+(?:\.\d*)?(?:e-?\d+)?|\.\d+)")


class Point(NamedTuple):
    """The share of --lr after a number of updates."""

    update: int
    share: float


@dataclass
class LinearStagesConfig(FairseqDataclass):
    """Options of the schedule."""

    lr_stages: str = setting(
        "",
        'UPDATE:SHARE ..., the share of --lr after so many updates, as "1000:1 9000:1 10000:0"; straight lines between '
        "them, from 0 on; two shares at one update are a jump",
    )
    lr_decay_shape: str = setting(
        "linear",
        "shape of the last stage: linear, or 1-sqrt, which falls faster at first (Haegele et al. 2024)",
        choices=("linear", "1-sqrt"),
    )
    lr: list[float] = II("optimization.lr")


def parse(text: str) -> tuple[Point, ...]:
    """The points of --lr-stages, a share of 0 at update 0 before them.

    Raises:
        ValueError: if the text is empty or not well formed, or updates go back.
    """
    points = [Point(0, 0.0)]
    for word in text.replace(",", " ").split():
        match = _POINT.fullmatch(word)
        if match is None:
            raise ValueError(f'--lr-stages: {word!r} is not UPDATE:SHARE. Write it as in "1000:1 9000:1 10000:0".')
        point = Point(int(match[1]), float(match[2]))
        if point.update < points[-1].update:
            raise ValueError(
                f"--lr-stages: {word} comes after update {points[-1].update}: sort the stages by their updates."
            )
        points.append(point)
    if len(points) == 1:
        raise ValueError('--lr-stages is missing: give the stages, as in --lr-stages "1000:1 9000:1 10000:0".')
    return tuple(points)


def share_at(points: tuple[Point, ...], updates: int, *, shape: str = "linear") -> float:
    """The share of the peak after this number of updates; after the last point, the last point's share."""
    after = bisect_right([point.update for point in points], updates)
    if after == len(points):
        return points[-1].share
    start, end = points[after - 1], points[after]
    progress = (updates - start.update) / (end.update - start.update)
    if shape == "1-sqrt" and after == len(points) - 1:
        progress = math.sqrt(progress)
    return start.share + progress * (end.share - start.share)


@register_lr_scheduler("linear_stages", dataclass=LinearStagesConfig)
class LinearStages(OwnGroup, FairseqLRScheduler):  # type: ignore[misc]
    """The learning rate of `--lr-stages`."""

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """Also check the stages, and that there is one rate."""
        super().check_options(cfg)
        parse(cfg.lr_stages or "")
        rates = getattr(cfg, "lr", None)
        if isinstance(rates, Sequence) and not isinstance(rates, str) and len(rates) > 1:
            raise ValueError(
                f"--lr {','.join(map(str, rates))} is a rate for each epoch, and --lr-scheduler linear_stages takes "
                "one, the peak: say by --lr-stages how it changes."
            )

    def __init__(self, cfg: LinearStagesConfig, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        self.check_options(cfg)
        self._points = parse(cfg.lr_stages)
        self.step_update(0)

    def step_begin_epoch(self, epoch: int) -> float:
        """Change nothing: the rate depends on the updates alone."""
        return float(self.optimizer.get_lr())

    def step_update(self, num_updates: int) -> float:
        """Set the rate of the next update; the first has the rate of update 1, as there is no update 0."""
        share = share_at(self._points, max(1, num_updates), shape=self.cfg.lr_decay_shape)
        self.optimizer.set_lr(self.cfg.lr[0] * share)
        return float(self.optimizer.get_lr())
