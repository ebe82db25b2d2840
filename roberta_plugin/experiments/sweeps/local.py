"""The runs of a sweep on this machine, several at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from roberta_plugin.experiments.sweeps.run import FAILED, POLL_S, Attempt, RunFolder
from roberta_plugin.machine import num_cores


def run_locally(
    folders: Sequence[RunFolder],
    *,
    num_parallel: int,
    gpus_per_run: int = 0,
    retries: int = 0,
    report: Callable[[RunFolder, str], None],
    look: Callable[[], None] = lambda: None,
) -> None:
    """Train the runs, at most `num_parallel` at a time; they are stopped if this is interrupted.

    Args:
        folders: prepared runs.
        num_parallel: how many at a time.
        gpus_per_run: each of the parallel runs sees this many GPUs of its own; 0: all see all there are.
        retries: how often a failed run is started again at once.
        report: called with each run that starts ("started"), ends (its state) or is another process's ("elsewhere").
        look: called several times a second.
    """
    slots = environments(num_parallel, gpus_per_run=gpus_per_run)
    waiting = [(folder, retries) for folder in folders]
    running: dict[int, tuple[Attempt, int]] = {}  # slot -> attempt and the retries it has left
    try:
        while waiting or running:
            for slot in set(range(num_parallel)) - set(running):
                while waiting and slot not in running:
                    folder, left = waiting.pop(0)
                    attempt = folder.start(slots[slot])
                    if attempt:
                        running[slot] = (attempt, left)
                    report(folder, "started" if attempt else "elsewhere")
            for slot, (attempt, left) in list(running.items()):
                state = attempt.poll()
                if state is None:
                    continue
                del running[slot]
                report(attempt.folder, state)
                if state == FAILED and left > 0:
                    waiting.append((attempt.folder, left - 1))
            look()
            time.sleep(POLL_S if running else 0)
    finally:
        if running:  # together, for each may be saving; and to the end, though a second Ctrl-C comes
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(lambda found: found[0].stop(), running.values()))


def environments(num_parallel: int, *, gpus_per_run: int) -> list[dict[str, str]]:
    """Variables that give each of the parallel runs its share of the machine.

    Raises:
        ValueError: if there are not enough GPUs.
    """
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, num_cores() // num_parallel))
    shares: list[dict[str, str]] = [{"OMP_NUM_THREADS": threads} for _ in range(num_parallel)]
    if gpus_per_run:
        gpus = visible_gpus()
        if len(gpus) < num_parallel * gpus_per_run:
            raise ValueError(
                f"--parallel {num_parallel} with --gpus-per-run {gpus_per_run} needs {num_parallel * gpus_per_run} "
                f"GPUs, and {len(gpus)} are visible. Lower one of the two."
            )
        for slot, share in enumerate(shares):
            share["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[slot * gpus_per_run : (slot + 1) * gpus_per_run])
    return shares


def visible_gpus() -> list[str]:
    """Names of the GPUs that a process started now would see, without starting CUDA."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return [str(number) for number in range(len(nodes))]
