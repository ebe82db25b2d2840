"""The planner's model of goodput beside a real job: ranks are killed at random times, and the log says where time went.

The model is given the mean seconds of an update, of a checkpoint's stall and of a restart; it predicts lost work and
goodput.
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
from tests.campaign.cluster import recipe
from tests.campaign.cluster_faults import Victim
from tests.campaign.outcome import Table
from tests.integration.test_slurm import log_of
from tests.slurm_cluster import SlurmCluster, slurm_cluster, talking_to, why_not

BETWEEN_FAILURES_S = 120.0
SAVE_EVERY = 50  # updates
UPDATES = 15_000
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

    def restarts(self) -> list[tuple[float, float]]:
        """Seconds from a failure to the beginning of the next update, and from the last failure in this time to it."""
        starts = [now for _, (now, _) in self._pairs(restarts=True)]
        times = []
        for before, start in zip([0.0, *starts], starts, strict=False):
            kills = [kill for kill in self.kills if before < kill < start]
            times.append((start - self.update_seconds() - min(kills), start - self.update_seconds() - max(kills)))
        return times

    def _pairs(self, *, restarts: bool) -> list[tuple[tuple[float, int], tuple[float, int]]]:
        """Neighbouring updates between which the job has, or has not, started again."""
        pairs = zip(self.updates, self.updates[1:], strict=False)
        return [pair for pair in pairs if (pair[1][1] <= pair[0][1] or pair[1][0] - pair[0][0] > RESTART_S) == restarts]

    def account(self) -> Simulated:
        """Where the time has gone, in the model's terms."""
        update, last = self.update_seconds(), self.updates[-1][1]
        elapsed = self.updates[-1][0] - self.updates[0][0] + update
        restarting, stalled = sum(first for first, _ in self.restarts()), last // SAVE_EVERY * self.stall_seconds()
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


def train(cluster: SlurmCluster, data: Path, output_dir: Path, gaps: list[float]) -> Timeline:
    """A job of which a rank is killed gaps[0] seconds after its first update, gaps[1] after that, and so on to its end."""
    options = ("--max-update", str(UPDATES), "--save-interval-updates", str(SAVE_EVERY), "--save-interval", "1000000")
    job_id = str(launch(recipe(data, output_dir, *options)).job_id)
    victim = Victim(cluster, job_id, output_dir, output_dir)
    victim.wait_for_updates(1, since=0)
    kills: list[float] = []
    waiting = iter(gaps)
    due = time.time() + next(waiting)
    deadline = time.monotonic() + 3600
    while (state := victim.fields()["JobState"]) != "COMPLETED":
        assert state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"), f"the job is {state}"
        assert time.monotonic() < deadline, "an hour has passed"
        if state == "PENDING":
            cluster.release(job_id)
        # a failure that finds no process waits for one: in the model it would begin the restart again
        rank = len(kills) % 2
        if time.time() >= due and cluster.has_rank(job_id, rank):
            due += next(waiting)
            kills.append(time.time())
            victim.kill(rank, signal.SIGKILL)
        time.sleep(0.5)
    return read_timeline(output_dir, job_id, kills)


def run_goodput(inputs: Path, folder: Path, *, seed: int = 0) -> Table:
    """The job and the comparison."""
    table = Table(
        "Goodput",
        ["agrees", "skipped", "differs", "failed"],
        bad=["differs", "failed"],
        explanation="What `roberta plan --failures-per-day` computes, beside a job of two ranks on a real SLURM in which "
        f"a rank is killed every {BETWEEN_FAILURES_S:.0f} s in the mean, at exponential intervals, and which saves every "
        f"{SAVE_EVERY} updates. The model is given the seconds of an update, of a checkpoint's stall and of a restart "
        "as the job's log shows them; SLURM's pause of two minutes before a requeued job is cut short. *The same "
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
    """Train under fire, measure, predict, compare."""
    rng = random.Random(seed)
    gaps = [rng.expovariate(1 / BETWEEN_FAILURES_S) for _ in range(1000)]
    found = train(cluster, inputs / "a", folder / "run", gaps)
    assert found.kills, f"the job ended before its first failure, after {gaps[0]:.0f} s: take another --seed"
    account = found.account()
    restart = statistics.mean(last for _, last in found.restarts())
    given = Measured(found.update_seconds(), found.stall_seconds(), restart)
    work = UPDATES * given.update
    same = simulate(work, seed=seed, **given.times())
    drawn = [simulate(work, seed=number, **given.times()).goodput for number in range(DRAWS)]
    table.notes += [
        f"The model is given {given.update:.3f} s an update, {given.stall:.2f} s a checkpoint, {given.restart:.1f} s a "
        f"restart, {UPDATES:,} updates.",
        f"Measured: {shares(account)}.",
        f"Model, the same failures: {shares(same)}.",
        f"Model, other failures at this rate: goodput {statistics.mean(drawn):.1%}, standard deviation "
        f"{statistics.stdev(drawn):.1%} over {DRAWS} draws; by the formula {goodput(**given.times()):.1%}.",
    ]
    outcome = "agrees" if abs(account.goodput - same.goodput) <= TOLERANCE else "differs"
    table.add("goodput of 2 ranks", outcome, f"measured {account.goodput:.1%}, predicted {same.goodput:.1%}")


def shares(account: Simulated) -> str:
    """Goodput, and the shares of all time that make up the rest."""
    total = account.kept / account.goodput
    return (
        f"{account.failures} failures, goodput {account.goodput:.1%}; restarts {account.restarting / total:.1%}, lost "
        f"work {account.lost / total:.1%}, checkpoints {account.stalled / total:.1%}; {total:.0f} s in all"
    )
