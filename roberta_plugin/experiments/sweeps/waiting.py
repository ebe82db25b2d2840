"""Wait until SLURM's queue holds no run of a sweep any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from roberta_plugin.experiments.sweeps.keep import keep_weights
from roberta_plugin.experiments.sweeps.progress import SweepProgress
from roberta_plugin.experiments.sweeps.run import RunFolder
from roberta_plugin.experiments.sweeps.slurm import fail_unfinished, queued_runs

POLL_S = 10.0
PATIENCE_S = 3600.0  # a controller may be restarted while its jobs run
SAY_EVERY_S = 600.0


def wait_for_queue(
    folders: Sequence[RunFolder],
    *,
    root: Path,
    keep: str,
    say: Callable[[str], None],
    show: Callable[[Sequence[RunFolder]], SweepProgress],
) -> None:
    """Wait for runs, then note a failure for those that have left the queue without training.

    Args:
        folders: the runs.
        root: folder of the sweep.
        keep: which checkpoints stay; `all`, or those of runs that are done lose what is needed to resume.
        say: receives messages for the user.
        show: makes the display of the progress.

    Raises:
        ChildProcessError: if SLURM has not answered for an hour.
    """
    with show(folders) as progress:
        while _may_be_queued(root, say):
            time.sleep(POLL_S)
            progress.look()
            if keep != "all":
                keep_weights(folders)
    fail_unfinished(folders, root=root)


def _may_be_queued(root: Path, say: Callable[[str], None]) -> bool:
    """Whether runs are in SLURM's queue; retries for an hour if squeue fails, as the jobs themselves do."""
    begun = time.monotonic()
    say_at = begun
    while True:
        try:
            answer = bool(queued_runs(root))
        except ChildProcessError as error:
            now = time.monotonic()
            if now > begun + PATIENCE_S:
                raise
            if now >= say_at:
                say_at = now + SAY_EVERY_S
                say(
                    f"{time.strftime('%H:%M:%S')} {error}; the jobs go on, and SLURM is asked again every "
                    f"{POLL_S:.0f} s for {(begun + PATIENCE_S - now) / 60:.0f} minutes"
                )
            time.sleep(POLL_S)
            continue
        if say_at > begun:
            say(f"{time.strftime('%H:%M:%S')} SLURM answers again")
        return answer
