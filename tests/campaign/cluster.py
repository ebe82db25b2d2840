"""One job on a real SLURM, hit by random faults in turn: it must end with the parameters of an undisturbed one."""

from __future__ import annotations

import os
import random
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.restart.attempts import read_attempts
from roberta_plugin.launch.submission import launch
from tests.campaign.environment import fill, mounted
from tests.campaign.outcome import Table
from tests.integration.test_slurm import log_of, recipe_of, updates_done
from tests.slurm_cluster import SlurmCluster, parent_of, slurm_cluster, wait_for, why_not

PATIENCE_S = 400.0
SAVE_EVERY = 20  # updates
SIGNAL_DELAY_S = 45
TOTAL = "100000"  # updates of the learning-rate schedule: how many are made is known at the end only


@dataclass
class Victim:
    """The job under attack."""

    cluster: SlurmCluster
    job_id: str
    output_dir: Path
    disk: Path
    restarts: list[float] = field(default_factory=list)  # seconds from a fault to the next update

    def fields(self) -> dict[str, str]:
        """What SLURM says of the job."""
        text = self.cluster.call("scontrol", "show", "job", "--oneliner", self.job_id)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def num_updates(self) -> int:
        """Updates in the log, those that were done again included."""
        return len(updates_done(self.output_dir, self.job_id))

    def wait_for_updates(self, count: int, *, since: int) -> None:
        """Until so many more have been made."""

        def are_there() -> bool:
            state = self.fields()["JobState"]
            assert state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"), f"the job is {state}"
            return self.num_updates() >= since + count

        wait_for(are_there, PATIENCE_S, f"{count} updates")

    def begin_again(self, attempt: int) -> None:
        """Until SLURM has put the job back; then let it start, on any node."""

        def is_back() -> bool:
            fields = self.fields()
            assert fields["JobState"] not in ("FAILED", "CANCELLED", "COMPLETED"), fields["JobState"]
            return int(fields["Restarts"]) >= attempt and fields["JobState"] in ("PENDING", "RUNNING")

        wait_for(is_back, PATIENCE_S, f"restart {attempt}")
        self.cluster.call("scontrol", "update", f"jobid={self.job_id}", "ExcNodeList=", "TimeLimit=600", check=False)
        self.cluster.release(self.job_id)
        wait_for(lambda: self.fields()["JobState"] == "RUNNING", PATIENCE_S, "the restarted job")

    def kill(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to the first process of a rank."""
        os.kill(self.cluster.pid_of_rank(self.job_id, rank), number)


def lost_rank(rank: int) -> Callable[[Victim], bool]:
    """SIGKILL of a rank."""

    def fault(victim: Victim) -> bool:
        victim.kill(rank, signal.SIGKILL)
        return True

    return fault


def stopped_rank(victim: Victim) -> bool:
    """SIGSTOP: the other rank notices, and the job ends without it."""
    victim.kill(1, signal.SIGSTOP)
    return True


def lost_worker(victim: Victim) -> bool:
    """SIGKILL of a data-loader worker of rank 0, as soon as there is one."""
    rank = victim.cluster.pid_of_rank(victim.job_id, 0)
    killed = False

    def kill() -> bool:
        nonlocal killed
        for pid in map(int, Path(f"/proc/{rank}/task/{rank}/children").read_text().split()):
            with suppress(OSError):
                is_worker = Path(f"/proc/{pid}/cmdline").read_bytes() == Path(f"/proc/{rank}/cmdline").read_bytes()
                if is_worker:
                    os.kill(pid, signal.SIGKILL)
                    killed = True
        return killed

    wait_for(kill, 60, "a data-loader worker")
    return False  # it may have done all its work of the epoch, and then nobody misses it


def lost_step_daemon(victim: Victim) -> bool:
    """SIGKILL of the slurmstepd that has started rank 1, which trains on; SLURM never hears of the rank's end."""
    daemon = parent_of(victim.cluster.pid_of_rank(victim.job_id, 1))
    assert Path(f"/proc/{daemon}/cmdline").read_bytes().startswith(b"slurmstepd: ")
    os.kill(daemon, signal.SIGKILL)
    return False


def lost_node(victim: Victim) -> bool:
    """A power cut of the second node, which comes back once the job has left it."""
    hosts = re.findall(r"rank 1 of world size 2 on (node\d)", log_of(victim.output_dir, victim.job_id, 1))
    attempt = int(victim.fields()["Restarts"])
    victim.cluster.kill_node(hosts[-1])
    wait_for(lambda: int(victim.fields()["Restarts"]) > attempt, PATIENCE_S, "a restart")
    time.sleep(5)
    victim.cluster.start_node(hosts[-1])
    victim.cluster.call("scontrol", "update", f"nodename={hosts[-1]}", "state=resume", check=False)
    return True


def restarted_controller(victim: Victim) -> bool:
    """slurmctld is away for ten seconds."""
    victim.cluster.stop_controller()
    time.sleep(10)
    victim.cluster.start_controller()
    return False


def lost_rank_without_controller(victim: Victim) -> bool:
    """The same, and a rank dies meanwhile."""
    victim.cluster.stop_controller()
    victim.kill(1, signal.SIGKILL)
    time.sleep(10)
    victim.cluster.start_controller()
    return True


def terminated_while_importing(victim: Victim) -> bool:
    """The job is stopped; once it starts again, SIGTERM reaches a rank before it can have a handler."""
    attempt = int(victim.fields()["Restarts"])
    victim.cluster.call("scancel", "--signal=TERM", victim.job_id)
    victim.begin_again(attempt + 1)
    wait_for(lambda: victim.cluster.has_rank(victim.job_id, 1), PATIENCE_S, "rank 1")
    with suppress(ProcessLookupError):
        victim.kill(1, signal.SIGTERM)
    return True


def preempted(victim: Victim) -> bool:
    """A job of higher priority takes all nodes for a second."""
    victim.cluster.call(
        "sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"
    )
    return True


def out_of_time(victim: Victim) -> bool:
    """The time limit is a minute away."""
    hours, minutes, _ = map(int, victim.fields()["RunTime"].split("-")[-1].split(":"))
    victim.cluster.call("scontrol", "update", f"jobid={victim.job_id}", f"TimeLimit={60 * hours + minutes + 2}")
    return True


def requeued(victim: Victim) -> bool:
    """By its user."""
    victim.cluster.call("scontrol", "requeue", victim.job_id)
    return True


def full_disk(victim: Victim) -> bool:
    """No room for the next checkpoint, until a save has failed; it is tried again for a minute."""
    before = log_of(victim.output_dir, victim.job_id).count("No space left on device")
    fill(victim.disk / "ballast")
    try:
        wait_for(
            lambda: log_of(victim.output_dir, victim.job_id).count("No space left on device") > before,
            PATIENCE_S,
            "a save on the full disk",
        )
    finally:
        (victim.disk / "ballast").unlink()
    return False


FAULTS: dict[str, Callable[[Victim], bool]] = {
    "rank 0 killed": lost_rank(0),
    "rank 1 killed": lost_rank(1),
    "rank 1 stopped": stopped_rank,
    "data-loader worker killed": lost_worker,
    "step daemon killed": lost_step_daemon,
    "node lost": lost_node,
    "controller restarted": restarted_controller,
    "rank 1 killed while the controller is away": lost_rank_without_controller,
    "SIGTERM while importing": terminated_while_importing,
    "preempted": preempted,
    "time limit": out_of_time,
    "requeued by its user": requeued,
    "disk full for a moment": full_disk,
}
"""Each returns whether the attempt must end."""


def choose(count: int, rng: random.Random) -> list[str]:
    """So many faults in random order: each kind once before any comes again."""
    chosen: list[str] = []
    while len(chosen) < count:
        chosen += rng.sample(list(FAULTS), min(len(FAULTS), count - len(chosen)))
    return chosen


def recipe(data: Path, output_dir: Path, *options: str) -> LaunchSettings:
    """Two ranks on two nodes, with dropout, a worker each, 16 blocks an update."""
    made = recipe_of(
        data,
        output_dir,
        nodes=2,
        gpus_per_node=1,
        time="600",
        signal_delay=SIGNAL_DELAY_S,
        env=("ROBERTA_LOST_RANK_SECONDS=30", "SLURM_WAIT=20"),
        options=("--save-interval-updates", str(SAVE_EVERY), "--dropout", "0.1", "--total-num-update", TOTAL, *options),
    )
    return made


def run_cluster(inputs: Path, folder: Path, *, faults: int = 20, seed: int = 0, only: str = "") -> Table:
    """The job in fp32 and in bf16, `faults` faults each."""
    table = Table(
        "Cluster",
        ["went on", "same end", "skipped", "failed"],
        bad=["failed"],
        explanation="One job of two ranks on two of three nodes of a real SLURM, hit by random faults while it trains, "
        "each kind once before any comes again. After each it must go on by itself; at the end it is cancelled, which "
        "saves, and its parameters must be bit for bit those of an undisturbed job of as many updates.",
    )
    if why_not() is not None or not mounted(folder / "disk", "size=32m"):
        table.add("cluster", "skipped", why_not() or "no tmpfs can be mounted here")
        return table
    try:
        (folder / "slurm").mkdir()
        with slurm_cluster(folder / "slurm", num_nodes=3) as cluster, talking_to(cluster):
            for precision, options in (("fp32", ()), ("bf16", ("--bf16",))):
                if only in precision:
                    attack(table, cluster, inputs, folder / "disk", precision, options, faults=faults, seed=seed)
    finally:
        subprocess.run(["umount", "-l", str(folder / "disk")], check=False)
    return table


@contextmanager
def talking_to(cluster: SlurmCluster) -> Iterator[None]:
    """SLURM's commands and the jobs of this process go to this cluster."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        del os.environ[name]
    os.environ.update({**cluster.environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def attack(
    table: Table,
    cluster: SlurmCluster,
    inputs: Path,
    disk: Path,
    precision: str,
    options: tuple[str, ...],
    *,
    faults: int,
    seed: int,
) -> None:
    """One run, its faults, and the comparison."""
    rng = random.Random(f"{seed} {precision}")
    output_dir = folder_on(disk, precision)
    job_id = str(launch(recipe(inputs / "a", output_dir, "--max-update", TOTAL, *options)).job_id)
    victim = Victim(cluster, job_id, output_dir, disk)
    try:
        victim.wait_for_updates(SAVE_EVERY + 5, since=0)
        for name in choose(faults, rng):
            strike(table, victim, f"{precision}, {name}", FAULTS[name])
            victim.wait_for_updates(rng.randint(SAVE_EVERY + 2, 3 * SAVE_EVERY), since=victim.num_updates())
        redone = victim.num_updates() - len(set(updates_done(output_dir, job_id)))
        cluster.call("scancel", job_id)
        wait_for(lambda: victim.fields()["JobState"] == "CANCELLED", PATIENCE_S, "the end of the job")
        found, update = state_of(output_dir)
        expected = undisturbed(cluster, inputs, folder_on(disk, f"{precision}-whole"), update, options)
        same = found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
        median = statistics.median(victim.restarts)
        said = f"{faults} faults, {update} updates, {redone} made again; {attempts(output_dir)}"
        said += f"; median from a fault to the next update {median:.0f} s"
        table.notes.append(f"{precision}: {said}.")
        table.add(f"{precision}, parameters", "same end" if same else "failed", said)
    except (AssertionError, subprocess.SubprocessError, OSError) as error:
        table.add(precision, "failed", f"{error} {log_of(output_dir, job_id)[-1500:]}")
    finally:
        cluster.call("scancel", job_id, check=False)


def folder_on(disk: Path, name: str) -> Path:
    """A run folder beside the disk, whose checkpoints are on it."""
    folder = disk.parent / name
    (disk / name).mkdir()
    folder.mkdir()
    (folder / "checkpoints").symlink_to(disk / name)
    return folder


def strike(table: Table, victim: Victim, name: str, fault: Callable[[Victim], bool]) -> None:
    """Let a fault happen, and wait until the job trains again."""
    attempt, before, begun = int(victim.fields()["Restarts"]), victim.num_updates(), time.monotonic()
    must_end = fault(victim)
    now = int(victim.fields()["Restarts"])
    if must_end:
        victim.begin_again(max(now, attempt + 1) if fault is not terminated_while_importing else attempt + 2)
    elif fault is lost_worker:
        time.sleep(15)
        if int(victim.fields()["Restarts"]) > attempt:
            victim.begin_again(attempt + 1)
    victim.wait_for_updates(1, since=max(before, victim.num_updates()))
    victim.restarts.append(time.monotonic() - begun)
    table.add(name, "went on", f"after {victim.restarts[-1]:.0f} s")


def undisturbed(
    cluster: SlurmCluster, inputs: Path, output_dir: Path, update: int, options: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """The parameters of a job of so many updates that nothing happens to."""
    job_id = str(launch(recipe(inputs / "a", output_dir, "--max-update", str(update), *options)).job_id)
    wait_for(lambda: cluster.state(job_id) in ("COMPLETED", "FAILED"), 3 * PATIENCE_S, "the undisturbed job")
    state, found = state_of(output_dir)
    assert found == update, f"the undisturbed job ended at update {found}"
    return state


def state_of(output_dir: Path) -> tuple[dict[str, torch.Tensor], int]:
    """Parameters and number of updates of the last checkpoint."""
    state = torch.load(output_dir / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    return state["model"], state["optimizer_history"][-1]["num_updates"]


def attempts(output_dir: Path) -> str:
    """As in `12 attempts: 5 stopped, 7 failed in training`."""
    kinds = [str(record["kind"]) for record in read_attempts(output_dir)]
    return f"{len(kinds)} attempts: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
