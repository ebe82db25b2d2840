"""Heartbeats in the rendezvous store: find missing or slow ranks.

A thread of each rank writes, also while the rank is busy. Rank 0 reads all signs and publishes its verdict; the
others read the verdict and watch rank 0. Used by `fairseq_workarounds/lost_ranks.py`.

Whole updates take equally long on all ranks, because each ends with a sum over all of them. A rank's own work is its
forward passes and the wait for its data; the backward pass waits for other ranks and is not counted.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch.distributed import Store  # type: ignore[attr-defined]

BEAT_S = 2.0
SUSPECT_BEATS = 3  # missed by a rank when a collective has failed
STALL_LIMITS = 5  # while a rank saves, validates or begins an epoch: a checkpoint may take 25 minutes
UPDATE_LIMITS = 2  # while all ranks make updates
STALL_UPDATES = 20  # ... but at least this multiple of the median update
UPDATING = "updating"
PUBLISHED = "published"  # key of rank 0's sign and verdict
NUM_KEPT = 100  # durations
FEWEST = 5  # before a median is given


class Verdict(NamedTuple):
    """Reason to end the training, and the nodes of the ranks that hang; empty if there is none."""

    text: str = ""
    hosts: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class Sign:
    """A rank's heartbeat: a counter, the steps begun, and the rank's host and process."""

    count: int
    steps: int
    host: str
    process: int
    doing: str = ""
    """UPDATING, or the rank's other activity."""
    update_s: float = 0.0
    """Median seconds per update; 0 before a few are done."""
    own_s: float = 0.0
    """Median seconds of the rank's own work per update."""
    worst_s: float = 0.0
    error: str = ""
    """The error with which the rank ended."""
    has_left: bool = False
    """The rank ended normally and is not missing."""


class Signs:
    """The last sign of each rank, and the seconds since it changed, counted while this process ran."""

    def __init__(self, *, beat_s: float) -> None:
        self.last: dict[int, Sign] = {}
        self.silence: dict[int, float] = {}
        self.stalled = 0.0  # since a rank has begun a step
        self._beat_s = beat_s
        self._lock = threading.Lock()

    def note(self, rank: int, sign: Sign) -> None:
        """Record a sign that was read."""
        with self._lock:
            if sign != self.last.get(rank):
                self.silence[rank] = 0.0
                if sign.steps > max((other.steps for other in self.last.values()), default=0):
                    self.stalled = 0.0
                self.last[rank] = sign

    def pass_time(self, seconds: float) -> None:
        """Add elapsed time, at most two beats a call: in longer gaps this process itself was suspended."""
        seconds = min(seconds, 2 * self._beat_s)
        with self._lock:
            for rank in self.silence:
                self.silence[rank] += seconds
            if any(sign.steps for sign in self.last.values()):
                self.stalled += seconds

    def silent(self, seconds: float) -> Verdict:
        """The ranks without a sign for `seconds`."""
        with self._lock:
            ranks = [rank for rank in sorted(self.last) if not self.last[rank].has_left]
            lost = [rank for rank in ranks if self.silence[rank] >= seconds]
            text = "; ".join(f"{self._name(rank)} {self._fate(rank)}" for rank in lost)
            return Verdict(text, self._hosts([rank for rank in lost if not self.last[rank].error]))

    def behind(self, limit_s: float) -> Verdict:
        """The ranks that hold up the others, if no step was begun for longer than `_patience`."""
        with self._lock:
            if self.stalled < self._patience(limit_s) or any(sign.has_left for sign in self.last.values()):
                return Verdict()
            steps = {rank: sign.steps for rank, sign in self.last.items()}
            said = f"no step was begun for {self.stalled:,.0f} s"
            last = max(steps.values())
            late = [rank for rank in sorted(steps) if steps[rank] < last]
            if not late:
                return Verdict(f"{said}; all ranks are in step {last:,}")
            names = [f"{self._name(rank)}, which is {self.last[rank].doing or 'starting'}" for rank in late]
            return Verdict(f"{said}: step {last:,} waits for {'; '.join(names)}", self._hosts(late))

    def _patience(self, limit_s: float) -> float:
        """Seconds without a step after which the training counts as hung.

        Example: with a limit of 300 s and updates of 10 s it is 600 s, of 100 s 2,000 s; while a rank saves, 1,500 s.
        """
        update_s = max((sign.update_s for sign in self.last.values()), default=0.0)
        is_updating = all(sign.doing == UPDATING and sign.update_s for sign in self.last.values())
        return max((UPDATE_LIMITS if is_updating else STALL_LIMITS) * limit_s, STALL_UPDATES * update_s)

    def slowest(self) -> Slowest | None:
        """The rank that the others wait for most; None before all ranks have made a few updates."""
        with self._lock:
            signs = dict(self.last)
        if len(signs) < 2 or not all(sign.own_s for sign in signs.values()):
            return None
        rank = max(signs, key=lambda rank: signs[rank].own_s)
        sign, all_s = signs[rank], statistics.median(sign.own_s for sign in signs.values())
        return Slowest(rank, sign.host, sign.own_s, sign.worst_s, all_s)

    def _hosts(self, ranks: list[int]) -> tuple[str, ...]:
        return tuple(sorted({self.last[rank].host for rank in ranks}))

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self.last[rank].host} (process {self.last[rank].process})"

    def _fate(self, rank: int) -> str:
        if self.last[rank].error:
            return f"has ended with {self.last[rank].error}"
        return f"has sent no heartbeat for {self.silence[rank]:,.0f} s"


class Watch:
    """The threads of one rank: one that exchanges signs, and may hang with rank 0, and one that judges."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        world_size: int,
        limit_s: float,
        end: Callable[[Verdict], None],
        on_beat: Callable[[], None] = lambda: None,
        beat_s: float = BEAT_S,
    ) -> None:
        self.steps = 0
        self.doing = ""  # UPDATING, or this rank's other activity
        self.updates, self.own_work = Durations(), Durations()
        self.is_over = threading.Event()
        self._store = store
        self._rank, self._world_size = rank, world_size
        self._limit_s, self._beat_s = limit_s, beat_s
        self._end = end  # called in a thread when a rank is lost
        self._on_beat = on_beat  # called in a thread as long as it runs
        self._signs = Signs(beat_s=beat_s)
        self._count = 0
        self._error, self._has_left = "", False
        self._suspects, self._verdict = "", Verdict()  # as rank 0 has found or published
        self._has_store = True
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._exchange, self._judge)]

    def start(self) -> None:
        """Write the first sign and start the threads."""
        self._write()
        for thread in self._threads:
            thread.start()

    def leave(self, error: str = "", *, wait_s: float = 5.0) -> None:
        """Write a last sign, with the error if there is one, and stop."""
        if self.is_over.is_set():
            return
        self._error, self._has_left = error[:500], not error
        self.is_over.set()
        self._threads[0].join(wait_s)  # it writes that sign, unless it hangs
        self._threads[1].join(wait_s)

    def slowest(self) -> Slowest | None:
        """The straggler, on rank 0."""
        return self._signs.slowest()

    def suspects(self) -> str:
        """After a failed collective, describe the missing ranks in a sentence; "" if all give signs of life."""
        deadline = time.monotonic() + (SUSPECT_BEATS + 3) * self._beat_s
        while time.monotonic() < deadline:
            if not self._has_store or self._suspects:
                found = self._suspects or self._signs.silent(0.0).text
                if self._rank == 0:
                    time.sleep(2 * self._beat_s)  # the others read it in a store that dies with us
                return found
            time.sleep(self._beat_s / 4)
        return ""

    def _exchange(self) -> None:
        try:
            while True:
                is_last = self.is_over.wait(self._beat_s)
                self._write()
                if self._rank == 0:
                    self._read_all()
                else:
                    self._read_published()
                if is_last:
                    return
        except RuntimeError:  # the store has died with rank 0
            self._has_store = False

    def _write(self) -> None:
        self._count += 1
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        sign = Sign(
            self._count,
            self.steps,
            host,
            os.getpid(),
            doing=self.doing,
            update_s=self.updates.median,
            own_s=self.own_work.median,
            worst_s=self.own_work.worst,
            error=self._error,
            has_left=self._has_left,
        )
        self._store.set(str(self._rank), json.dumps(asdict(sign)))
        if self._rank == 0:
            said = {"sign": asdict(sign), "suspects": self._suspects, "verdict": self._verdict}
            self._signs.note(0, sign)
            self._store.set(PUBLISHED, json.dumps(said))

    def _read_all(self) -> None:
        known = self._signs.last
        ranks = [rank for rank in range(1, self._world_size) if rank in known or self._store.check([str(rank)])]
        for rank, text in zip(
            ranks, self._store.multi_get([str(rank) for rank in ranks]) if ranks else (), strict=True
        ):
            self._signs.note(rank, Sign(**json.loads(text)))

    def _read_published(self) -> None:
        if self._store.check([PUBLISHED]):
            said = json.loads(self._store.get(PUBLISHED))
            self._signs.note(0, Sign(**said["sign"]))
            text, hosts = said["verdict"]
            self._suspects, self._verdict = said["suspects"], Verdict(text, tuple(hosts))

    def _judge(self) -> None:
        before = time.monotonic()
        while not self.is_over.wait(self._beat_s):
            before, passed = time.monotonic(), time.monotonic() - before
            self._signs.pass_time(passed)
            self._on_beat()
            suspects = self._signs.silent(SUSPECT_BEATS * self._beat_s).text
            if self._rank == 0 or suspects:
                self._suspects = suspects
            verdict = self._verdict if self._verdict.text else self._signs.silent(self._limit_s)
            if self._rank == 0 and not verdict.text:
                verdict = self._signs.behind(self._limit_s)
            if not verdict.text:
                continue
            self._verdict = verdict
            if self._rank == 0:  # the others read it in a store that dies with us
                self.is_over.wait(3 * self._beat_s)
            if not self.is_over.is_set():
                self._end(verdict)
            return
