"""Update and compute times per rank, to find stragglers.

Whole updates take equally long on all ranks, because each ends with a sum over all of them. A rank's own work is its
forward passes and the wait for its data. The backward pass waits for other ranks and is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

NUM_KEPT = 100
FEWEST = 5  # before a median is given


class Slowest(NamedTuple):
    """The straggler: the rank with the longest own work per update; seconds."""

    rank: int
    host: str
    median_s: float
    worst_s: float
    all_s: float
    """The median over all ranks' medians."""


class Durations:
    """The last `NUM_KEPT` durations, in seconds; written by one thread, read by another."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=NUM_KEPT)

    def add(self, seconds: float) -> None:
        """Add one."""
        self._last.append(seconds)

    @property
    def median(self) -> float:
        """The median; 0 before there are `FEWEST`."""
        last = tuple(self._last)
        return statistics.median(last) if len(last) >= FEWEST else 0.0

    @property
    def worst(self) -> float:
        """The longest; 0 before there are `FEWEST`."""
        last = tuple(self._last)
        return max(last) if len(last) >= FEWEST else 0.0


class ForwardClock:
    """Times a module's forward passes in training; on a GPU with CUDA events, without synchronizing."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._begun: Any = None
        self._passes: list[tuple[Any, Any]] = []
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end)

    def take(self) -> float | None:
        """Seconds of all passes since the last call; None if there were none, or a GPU has not finished them."""
        passes, self._passes = self._passes, []
        if not passes:
            return None
        if isinstance(passes[0][0], float):
            return float(sum(end - begin for begin, end in passes))
        if not passes[-1][1].query():
            return None
        return float(sum(begin.elapsed_time(end) for begin, end in passes)) / 1e3

    def _begin(self, module: torch.nn.Module, inputs: Any) -> None:
        self._begun = _now(module) if module.training else None

    def _end(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        if self._begun is not None:
            self._passes.append((self._begun, _now(module)))
            self._begun = None


def _now(module: torch.nn.Module) -> Any:
    """The current time on the module's device: seconds, or an event in the GPU's queue."""
    if not next(module.parameters()).is_cuda:
        return time.perf_counter()
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
