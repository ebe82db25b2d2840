"""Fault 19: a rank that is killed, stopped or hangs leaves the others waiting, and no error names it.

gloo waits half an hour and NCCL ten minutes; a stopped rank 0 holds up both for ever. Where a connection breaks at
once, the error has an address and a port, but no rank. So a thread of each rank writes heartbeats into the rendezvous
store, also while the rank is busy. Rank 0 reads them all and publishes its verdict; the others read the verdict and
watch rank 0:

    no heartbeat of a rank for LIMIT_S          the others end, and name it
    heartbeats, but no step for longer than     they end, and name those with the fewest steps
      `Heartbeats._patience`
    a collective fails                          its error names the rank without a heartbeat

Before it ends, each rank writes the stacks of all its threads to stderr. So does a rank whose heartbeat thread could
not run for most of LIMIT_S (a C function held Python's lock). No step waits for the thread. A job that is suspended and
resumed as a whole continues.

torch alone does not suffice. `monitored_barrier` before each update works with gloo only, and reports the number of a
rank, without its node, to rank 0 only; a stopped rank 0 holds up the others until the limit of their group, half an
hour. NCCL's watchdog ends ranks whose collective has timed out, without naming the missing one.

The straggler: whole updates take equally long on all ranks, because each ends with a sum over all of them. A rank's own
work is its forward passes and the wait for its data; the backward pass waits for other ranks and is not counted.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import os
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessExitedException

VARIABLE = "ROBERTA_LOST_RANK_SECONDS"
LIMIT_S = 300.0
EXIT_CODE = os.EX_TEMPFAIL
STDERR = 2
STACKS_AFTER = 0.8  # fraction of the limit without a beat of a rank's main thread
BEAT_S = 2.0
RANKS_A_BEAT = 256  # more ranks beat more slowly: rank 0 reads them all, and must not become the straggler
SUSPECT_BEATS = 3  # missed by a rank when a collective has failed
STALL_LIMITS = 5  # while a rank saves, validates or begins an epoch: a checkpoint may take 25 minutes
UPDATE_LIMITS = 2  # while all ranks make updates
STALL_UPDATES = 20  # ... but at least this multiple of the median update
UPDATING = "updating"
PUBLISHED = "published"  # key of rank 0's heartbeat and verdict
NUM_KEPT = 100  # durations
FEWEST = 5  # before a median is given

on_lost: list[Callable[[Exception], None]] = []
"""Called before the process ends because of a lost rank."""


class Verdict(NamedTuple):
    """Reason to end the training, and the nodes of the ranks that hang; empty if there is no reason."""

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


class Durations(deque[float]):
    """The last `NUM_KEPT` durations, in seconds; written by one thread, read by another."""

    def __init__(self) -> None:
        super().__init__(maxlen=NUM_KEPT)

    def median_and_longest(self) -> tuple[float, float]:
        """The median and the longest; 0 before there are `FEWEST`."""
        last = tuple(self)
        return (statistics.median(last), max(last)) if len(last) >= FEWEST else (0.0, 0.0)


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
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@dataclass
class Heartbeat:
    """The content that a rank writes: a counter, the steps begun, and the rank's host and process."""

    count: int = 0
    steps: int = 0
    host: str = field(default_factory=lambda: os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    process: int = field(default_factory=os.getpid)
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


class Heartbeats:
    """The last heartbeat of each rank, and the seconds since it changed, counted while this process ran."""

    def __init__(self, *, beat_s: float) -> None:
        self.last: dict[int, Heartbeat] = {}
        self.silence: dict[int, float] = {}
        self.stalled = 0.0  # since a rank has begun a step
        self._beat_s = beat_s
        self._lock = threading.Lock()

    def note(self, rank: int, beat: Heartbeat) -> None:
        """Record a beat that was read."""
        with self._lock:
            if beat != self.last.get(rank):
                self.silence[rank] = 0.0
                if beat.steps > max((other.steps for other in self.last.values()), default=0):
                    self.stalled = 0.0
                self.last[rank] = beat

    def pass_time(self, seconds: float) -> None:
        """Add elapsed time, at most two beats a call: in longer gaps this process itself was suspended."""
        seconds = min(seconds, 2 * self._beat_s)
        with self._lock:
            for rank in self.silence:
                self.silence[rank] += seconds
            if any(beat.steps for beat in self.last.values()):
                self.stalled += seconds

    def silent(self, seconds: float) -> Verdict:
        """The ranks without a heartbeat for `seconds`; the node of one that ended with an error is not at fault."""
        with self._lock:
            lost = [r for r in sorted(self.last) if not self.last[r].has_left and self.silence[r] >= seconds]
            fates = {r: f"sent no heartbeat for {self.silence[r]:,.0f} s" for r in lost}
            fates |= {r: f"ended with {self.last[r].error}" for r in lost if self.last[r].error}
            text = "; ".join(f"{self._name(rank)} has {fate}" for rank, fate in fates.items())
            return Verdict(text, self._hosts([rank for rank in lost if not self.last[rank].error]))

    def behind(self, limit_s: float) -> Verdict:
        """The ranks that hold up the others, if no step was begun for longer than `_patience`."""
        with self._lock:
            if self.stalled < self._patience(limit_s) or any(beat.has_left for beat in self.last.values()):
                return Verdict()
            steps = {rank: beat.steps for rank, beat in self.last.items()}
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
        update_s = max((beat.update_s for beat in self.last.values()), default=0.0)
        is_updating = all(beat.doing == UPDATING and beat.update_s for beat in self.last.values())
        return max((UPDATE_LIMITS if is_updating else STALL_LIMITS) * limit_s, STALL_UPDATES * update_s)

    def slowest(self) -> Slowest | None:
        """The rank that the others wait for most; None before all ranks have made a few updates."""
        with self._lock:
            beats = dict(self.last)
        if len(beats) < 2 or not all(beat.own_s for beat in beats.values()):
            return None
        rank, beat = max(beats.items(), key=lambda pair: pair[1].own_s)
        all_s = statistics.median(beat.own_s for beat in beats.values())
        return Slowest(rank, beat.host, beat.own_s, beat.worst_s, all_s)

    def _hosts(self, ranks: list[int]) -> tuple[str, ...]:
        return tuple(sorted({self.last[rank].host for rank in ranks}))

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self.last[rank].host} (process {self.last[rank].process})"


class Watch:
    """The threads of one rank: one that exchanges heartbeats, and may hang with rank 0, and one that judges."""

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
        self.heartbeat = Heartbeat()
        self.updates, self.own_work = Durations(), Durations()
        self.is_over = threading.Event()
        self.beats = Heartbeats(beat_s=beat_s)
        self._store, self._rank, self._world_size = store, rank, world_size
        self._limit_s, self._beat_s = limit_s, beat_s
        self._end = end  # called in a thread when a rank is lost
        self._on_beat = on_beat  # called in a thread as long as it runs
        self._suspects, self._verdict = "", Verdict()  # as rank 0 has found or published
        self._has_store = True
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._exchange, self._judge)]

    def start(self) -> None:
        """Write the first heartbeat and start the threads."""
        self._write()
        for thread in self._threads:
            thread.start()

    def leave(self, error: str = "", *, wait_s: float = 5.0) -> None:
        """Write a last heartbeat, with the error if there is one, and stop."""
        if self.is_over.is_set():
            return
        self.heartbeat.error, self.heartbeat.has_left = error[:500], not error
        self.is_over.set()
        self._threads[0].join(wait_s)  # it writes that one, unless it hangs
        self._threads[1].join(wait_s)

    def suspects(self) -> str:
        """After a failed collective, describe the missing ranks in a sentence; "" if all send heartbeats."""
        deadline = time.monotonic() + (SUSPECT_BEATS + 3) * self._beat_s
        while time.monotonic() < deadline:
            if not self._has_store or self._suspects:
                text = self._suspects or self.beats.silent(0.0).text
                if self._rank == 0:
                    time.sleep(2 * self._beat_s)  # the others read it in a store that dies with us
                return text
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
        self.heartbeat.count += 1
        self.heartbeat.update_s, _ = self.updates.median_and_longest()
        self.heartbeat.own_s, self.heartbeat.worst_s = self.own_work.median_and_longest()
        beat = replace(self.heartbeat)
        self._store.set(str(self._rank), json.dumps(asdict(beat)))
        if self._rank == 0:
            self.beats.note(0, beat)
            said = {"beat": asdict(beat), "suspects": self._suspects, "verdict": self._verdict}
            self._store.set(PUBLISHED, json.dumps(said))

    def _read_all(self) -> None:
        beats = self.beats.last
        ranks = [str(rank) for rank in range(1, self._world_size) if rank in beats or self._store.check([str(rank)])]
        for rank, text in zip(ranks, self._store.multi_get(ranks) if ranks else (), strict=True):
            self.beats.note(int(rank), Heartbeat(**json.loads(text)))

    def _read_published(self) -> None:
        if self._store.check([PUBLISHED]):
            said = json.loads(self._store.get(PUBLISHED))
            self.beats.note(0, Heartbeat(**said["beat"]))
            text, hosts = said["verdict"]
            self._suspects, self._verdict = said["suspects"], Verdict(text, tuple(hosts))

    def _judge(self) -> None:
        before = time.monotonic()
        while not self.is_over.wait(self._beat_s):
            before, passed = time.monotonic(), time.monotonic() - before
            self.beats.pass_time(passed)
            self._on_beat()
            suspects = self.beats.silent(SUSPECT_BEATS * self._beat_s).text
            if self._rank == 0 or suspects:
                self._suspects = suspects
            verdict = self._verdict if self._verdict.text else self.beats.silent(self._limit_s)
            if self._rank == 0 and not verdict.text:
                verdict = self.beats.behind(self._limit_s)
            if not verdict.text:
                continue
            self._verdict = verdict
            if self._rank == 0:  # the others read it in a store that dies with us
                self.is_over.wait(3 * self._beat_s)
            if not self.is_over.is_set():
                self._end(verdict)
            return


class LostRankError(RuntimeError):
    """Another rank is missing; `nodes` holds the nodes of ranks that hang or are silent."""

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes


def sentence(verdict: str) -> str:
    """The message for the user: the missing rank, and the remedy."""
    return (
        f"Lost rank: {verdict}. Look at its node and its output; the same command resumes from the last checkpoint. "
        f"(Ranks may be silent for {VARIABLE} seconds, {limit_s():g} now; 0 waits as long as gloo and NCCL do.)"
    )


def end_process(verdict: Verdict) -> None:
    """End this process from a thread: the main one waits for the lost rank and cannot be reached."""
    error = LostRankError(sentence(verdict.text), nodes=verdict.hosts)
    for call in on_lost:
        call(error)
    sys.stdout.flush()
    os.write(STDERR, b"\nStacks of all threads; the last line says why this rank ends.\n")
    faulthandler.dump_traceback(file=STDERR, all_threads=True)
    os.write(STDERR, f"\n{type(error).__name__}: {error}\n".encode())
    os._exit(EXIT_CODE)


def limit_s() -> float:
    """Seconds without a heartbeat after which a rank counts as lost; 0 for no watch.

    Raises:
        ValueError: if the environment variable is not a number of seconds.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text or LIMIT_S)
    except ValueError:
        seconds = -1.0
    if not (seconds == 0 or 5 * BEAT_S <= seconds < float("inf")):
        raise ValueError(
            f"The environment variable {VARIABLE} is {text!r}: give seconds, {5 * BEAT_S:g} or more, or 0."
        )
    return seconds


def seconds_a_beat(num_ranks: int, *, limit_s: float) -> float:
    """Seconds between two heartbeats; at least five of them fit into the limit.

    Example: 2 s up to 256 ranks, 8 s at 1,024.
    """
    return min(BEAT_S * max(1.0, num_ranks / RANKS_A_BEAT), limit_s / 5)


def connection() -> Store:
    """A second connection to the process group's store: the main thread may hold the first one for long.

    torchrun may keep the store over restarts of the ranks; entries of an earlier start must not be read.
    """
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        store = TCPStore(store.host, store.port, None, False, wait_for_workers=False)
    return PrefixStore(f"lost-ranks/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}", store)


_watch: Watch | None = None
_forward: ForwardClock | None = None
_data_since: float | None = None  # when this rank began to wait for the data of the next update


def start(trainer: Any) -> None:
    """Start to watch the other ranks; does nothing on a single rank, or when called again."""
    global _watch, _forward
    seconds = limit_s()
    if _watch or not seconds or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    # gloo's and NCCL's own limit is the last resort: it names no rank, and a checkpoint may take longer than that
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2 * STALL_LIMITS * seconds))
    _forward = ForwardClock(trainer._model)
    _watch = Watch(
        connection(),
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        limit_s=seconds,
        beat_s=seconds_a_beat(dist.get_world_size(), limit_s=seconds),
        end=end_process,
        on_beat=lambda: faulthandler.dump_traceback_later(STACKS_AFTER * seconds, file=STDERR),
    )
    _watch.start()
    Finalize(None, _leave, exitpriority=90)


def _leave() -> None:
    if _watch is not None:
        _watch.leave()
    faulthandler.cancel_dump_traceback_later()


def slowest() -> Slowest | None:
    """The straggler, on rank 0 of several."""
    return None if _watch is None else _watch.beats.slowest()


@contextmanager
def doing(what: str) -> Iterator[None]:
    """While entered, this rank's heartbeats name its activity."""
    if _watch is None:
        yield
        return
    before, _watch.heartbeat.doing = _watch.heartbeat.doing, what
    try:
        yield
    finally:
        _watch.heartbeat.doing = before


@contextmanager
def watched() -> Iterator[None]:
    """While entered, errors of collectives name the lost rank, and other errors are announced to all ranks.

    Raises:
        LostRankError: from the error of a collective.
    """
    try:
        yield
    except Exception as error:
        if _watch is None or isinstance(error, LostRankError):
            raise
        suspects = _watch.suspects() if is_of_collective(error) else ""
        _watch.leave(f"{type(error).__name__}: {error}")
        if not suspects:
            raise
        raise LostRankError(sentence(suspects)) from error


def is_of_collective(error: Exception) -> bool:
    """True if another rank may be the cause."""
    is_known = isinstance(error, dist.DistError) or any(name in str(error) for name in ("gloo", "NCCL", "Connection"))
    return isinstance(error, RuntimeError) and is_known


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, *args: Any, **options: Any) -> Any:
    """Start the watch, then run fairseq's function, the first in which ranks wait for each other."""
    start(trainer)
    with watched(), doing("loading"):
        return fairseqs(cfg, trainer, *args, **options)


def save_checkpoint(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's function; its time does not count as waiting for data."""
    global _data_since
    with doing("saving"):
        saved = fairseqs(*args, **options)
    _data_since = time.perf_counter()
    return saved


def validate(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's validation, named in the heartbeats."""
    with doing("validating"):
        return fairseqs(*args, **options)


def train(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's epoch; its first step sets this rank's activity."""
    with watched(), doing("beginning an epoch"):
        return fairseqs(*args, **options)


def validate_and_save(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run fairseq's function after each update; then this rank waits for data."""
    global _data_since
    ended = fairseqs(*args, **options)
    _data_since = time.perf_counter()
    return ended


def train_step(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run, count and time fairseq's step."""
    global _data_since
    if _watch is None or _forward is None:
        return fairseqs(*args, **options)
    begun = time.perf_counter()
    waited = 0.0 if _data_since is None else begun - _data_since
    _watch.heartbeat.steps += 1
    _watch.heartbeat.doing = UPDATING
    result = fairseqs(*args, **options)
    _watch.updates.append(time.perf_counter() - begun)
    computed = _forward.take()
    if computed is not None and _data_since is not None:
        _watch.own_work.append(waited + computed)
    _data_since = None
    return result


def valid_step(fairseqs: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run and count fairseq's step."""
    if _watch is not None:
        _watch.heartbeat.steps += 1
    return fairseqs(*args, **options)


def call_main(fairseqs: Callable[..., None], *args: Any, **options: Any) -> None:
    """Run a program on all ranks as fairseq does; a rank's message about a lost rank stays its last output."""
    try:
        fairseqs(*args, **options)
    except ProcessExitedException as error:
        if error.exit_code != EXIT_CODE:
            raise
        sys.exit(EXIT_CODE)
