"""The planner's model of goodput beside a real job: ranks are killed at random times, and the log says where time went.

undisturbed updates, three kills  -> seconds an update, a checkpoint's stall, a restart     (what the model is given)
kills at exponential intervals    -> kept, made again, stalled, restarting, goodput         (what it predicts)
"""

from __future__ import annotations

import random
import re
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from roberta_plugin.launch.submission import launch
from roberta_plugin.planner.goodput import Simulated, goodput, simulate
from tests.campaign.cluster import Victim, recipe, talking_to
from tests.campaign.outcome import Table
from tests.integration.test_slurm import log_of
from tests.slurm_cluster import SlurmCluster, slurm_cluster, why_not

BETWEEN_FAILURES_S = 100.0
SAVE_EVERY = 100  # updates
UPDATES = 3000
CALIBRATION_UPDATES = 800
CALIBRATION_KILLS = [70.0] * 3  # seconds; each attempt saves, or the job would end after three
RESTART_S = 8.0  # no update takes so long, and no restart is shorter
TOLERANCE = 0.05  # of the goodput, absolute
DRAWS = 500


@dataclass(frozen=True)
class Measured:
    """What the model is given: mean seconds."""

    update: float
    stall: float
    restart: float

    def times(self) -> dict[str, float]:
        """The arguments of `goodput` and `simulate`."""
        return {
            "interval": SAVE_EVERY * self.update,
            "stall": self.stall,
            "restart": self.restart,
            "between_failures": BETWEEN_FAILURES_S,
        }


@dataclass
class Timeline:
    """When rank 0 has logged its updates, over all attempts, and when ranks were killed; seconds since the epoch."""

    updates: list[tuple[float, int]]
    kills: list[float] = field(default_factory=list)

    def update_seconds(self) -> float:
        """Mean time of an update without a checkpoint."""
        return statistics.mean(
            now - before for (before, last), (now, _) in self._pairs(restarts=False) if last % SAVE_EVERY
        )

    def stall_seconds(self) -> float:
        """Mean time that a checkpoint adds to the update after it."""
        gaps = [now - before for (before, last), (now, _) in self._pairs(restarts=False) if last % SAVE_EVERY == 0]
        return max(0.0, statistics.mean(gaps) - self.update_seconds())

    def restart_seconds(self) -> list[float]:
        """From each failure to the beginning of the next update; one during a restart has no time of its own."""
        starts = [now for _, (now, _) in self._pairs(restarts=True)]
        first_kills = [
            min(kill for kill in self.kills if before < kill < start)
            for before, start in zip([0.0, *starts], starts, strict=False)
        ]
        return [start - kill - self.update_seconds() for kill, start in zip(first_kills, starts, strict=True)]

    def _pairs(self, *, restarts: bool) -> list[tuple[tuple[float, int], tuple[float, int]]]:
        """Neighbouring updates between which the job has, or has not, started again."""
        pairs = zip(self.updates, self.updates[1:], strict=False)
        return [pair for pair in pairs if (pair[1][1] <= pair[0][1] or pair[1][0] - pair[0][0] > RESTART_S) == restarts]

    def account(self) -> Simulated:
        """Where the time has gone, in the model's terms."""
        update, last = self.update_seconds(), self.updates[-1][1]
        elapsed = self.updates[-1][0] - self.updates[0][0] + update
        restarting, stalled = sum(self.restart_seconds()), last // SAVE_EVERY * self.stall_seconds()
        lost = elapsed - last * update - restarting - stalled
        return Simulated(
            kept=last * update, lost=lost, stalled=stalled, restarting=restarting, failures=len(self.kills)
        )


def read_timeline(output_dir: Path, job_id: str, kills: list[float]) -> Timeline:
    """From the log of rank 0."""
    found = re.findall(
        r'^(\S+ \S+) \| INFO \| train_inner \| .*"num_updates": "(\d+)"', log_of(output_dir, job_id), re.MULTILINE
    )
    updates = [(datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp(), int(number)) for text, number in found]
    return Timeline(updates, kills)


def train(cluster: SlurmCluster, data: Path, output_dir: Path, updates: int, gaps: list[float]) -> Timeline:
    """A job of so many updates, of which a rank is killed `gaps` seconds after its first update, after the last kill, ..."""
    options = ("--max-update", str(updates), "--save-interval-updates", str(SAVE_EVERY), "--save-interval", "1000000")
    job_id = str(launch(recipe(data, output_dir, *options)).job_id)
    victim = Victim(cluster, job_id, output_dir, output_dir)
    victim.wait_for_updates(1, since=0)
    kills: list[float] = []
    failed_at = time.time()
    waiting = list(gaps)
    deadline = time.monotonic() + 3600
    while (state := victim.fields()["JobState"]) != "COMPLETED":
        assert state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"), f"the job is {state}"
        assert time.monotonic() < deadline, "an hour has passed"
        if state == "PENDING":
            cluster.release(job_id)
        # a failure that finds no process waits for one: in the model it would begin the restart again
        rank = len(kills) % 2
        if waiting and time.time() - failed_at >= waiting[0] and cluster.has_rank(job_id, rank):
            failed_at += waiting.pop(0)
            kills.append(time.time())
            victim.kill(rank, signal.SIGKILL)
        time.sleep(0.5)
    return read_timeline(output_dir, job_id, kills)


def run_goodput(inputs: Path, folder: Path, *, seed: int = 0) -> Table:
    """Both jobs, and the comparison."""
    table = Table(
        "Goodput",
        ["agrees", "skipped", "differs", "failed"],
        bad=["differs", "failed"],
        explanation="What `roberta plan --failures-per-day` computes, beside a job of two ranks on a real SLURM in which "
        f"a rank is killed every {BETWEEN_FAILURES_S:.0f} s in the mean, at exponential intervals, and which saves every "
        f"{SAVE_EVERY} updates. The model is given the seconds of an update, of a checkpoint's stall and of a restart "
        "as an earlier job has shown them; SLURM's pause of two minutes before a requeued job is cut short. *The same "
        "failures*: `simulate` with the intervals at which the ranks were killed; it agrees if its goodput is within "
        f"{TOLERANCE:.0%} of all time.",
    )
    if why_not() is not None:
        table.add("goodput", "skipped", str(why_not()))
        return table
    try:
        (folder / "slurm").mkdir()
        with slurm_cluster(folder / "slurm", num_nodes=3) as cluster, talking_to(cluster):
            compare(table, cluster, inputs, folder, seed)
    except (AssertionError, subprocess.SubprocessError, OSError) as error:
        table.add("goodput", "failed", str(error))
    return table


def compare(table: Table, cluster: SlurmCluster, inputs: Path, folder: Path, seed: int) -> None:
    """Measure, predict, train under fire, compare."""
    earlier = train(cluster, inputs / "a", folder / "calibration", CALIBRATION_UPDATES, CALIBRATION_KILLS)
    given = Measured(earlier.update_seconds(), earlier.stall_seconds(), statistics.mean(earlier.restart_seconds()))
    rng = random.Random(seed)
    gaps = [rng.expovariate(1 / BETWEEN_FAILURES_S) for _ in range(1000)]
    found = train(cluster, inputs / "a", folder / "under-fire", UPDATES, gaps)
    account = found.account()
    work = UPDATES * given.update
    same = simulate(work, seed=seed, **given.times())
    drawn = [simulate(work, seed=number, **given.times()).goodput for number in range(DRAWS)]
    then = Measured(found.update_seconds(), found.stall_seconds(), statistics.mean(found.restart_seconds()))
    table.notes += [
        f"Given, from {CALIBRATION_UPDATES} updates and {len(earlier.kills)} kills: {shown(given)}.",
        f"The same in the job itself, of {UPDATES} updates and {account.failures} kills: {shown(then)}.",
        f"Measured: {shares(account)}.",
        f"Model, the same failures: {shares(same)}.",
        f"Model, other failures at this rate: goodput {statistics.mean(drawn):.1%}, standard deviation "
        f"{statistics.stdev(drawn):.1%} over {DRAWS} draws; by the formula {goodput(**given.times()):.1%}.",
    ]
    difference = account.goodput - same.goodput
    outcome = "agrees" if abs(difference) <= TOLERANCE else "differs"
    table.add("goodput of 2 ranks", outcome, f"measured {account.goodput:.1%}, predicted {same.goodput:.1%}")


def shown(measured: Measured) -> str:
    """As in `0.12 s an update, 0.3 s a checkpoint, 25 s a restart`."""
    return f"{measured.update:.3f} s an update, {measured.stall:.2f} s a checkpoint, {measured.restart:.1f} s a restart"


def shares(account: Simulated) -> str:
    """Goodput, and the shares of all time that make up the rest."""
    total = account.kept / account.goodput
    return (
        f"{account.failures} failures, goodput {account.goodput:.1%}; restarts {account.restarting / total:.1%}, lost "
        f"work {account.lost / total:.1%}, checkpoints {account.stalled / total:.1%}; {total:.0f} s in all"
    )
