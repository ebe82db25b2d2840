"""One job on a real SLURM, hit by random faults in turn: it must end with the parameters of an undisturbed one."""

from __future__ import annotations

import random
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.restart import read_attempts
from roberta_plugin.launch.submission import launch
from tests.campaign.cluster_faults import FAULTS, PATIENCE_S, Victim, lost_worker, terminated_while_importing
from tests.campaign.environment import mounted
from tests.campaign.outcome import Table
from tests.integration.test_slurm import log_of, recipe_of, updates_done
from tests.slurm_cluster import SlurmCluster, slurm_cluster, talking_to, wait_for, why_not

SAVE_EVERY = 20  # updates
SIGNAL_DELAY_S = 45
TOTAL = "100000"  # updates of the learning-rate schedule: how many are made is known at the end only


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
