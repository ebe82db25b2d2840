"""What happens to a job on SLURM: ranks, workers, daemons and nodes die, time and disk run out, others come first."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.test_slurm import log_of, updates_done
from tests.slurm_cluster import SlurmCluster, parent_of, wait_for

PATIENCE_S = 400.0


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
        return self.cluster.fields(self.job_id)

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


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


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
