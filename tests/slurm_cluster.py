"""A real SLURM on this machine, for tests: munged, slurmctld and one slurmd for each virtual node, in one folder.

Needs root and Debian's packages: apt-get install -y --no-install-recommends slurm-wlm munge. Every virtual node has
a host name and a loopback address of its own; all share the machine's processors, file system and network.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMANDS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "unshare")
CPUS = 8


def why_not() -> str | None:
    """Why no SLURM can be started here, None if it can."""
    missing = [name for name in COMMANDS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        return f"{missing[0]} is not installed: apt-get install -y --no-install-recommends slurm-wlm munge"
    if os.geteuid() != 0:
        return "starting slurmd for several virtual nodes needs root"
    # a container may forbid what gives each virtual node its own host name
    namespaces = subprocess.run(["unshare", "-m", "-u", "true"], capture_output=True, text=True, check=False)
    return None if namespaces.returncode == 0 else f"unshare -m -u does not work here: {namespaces.stderr.strip()}"


needs_slurm = pytest.mark.skipif(why_not() is not None, reason=f"no SLURM: {why_not()}")


class SlurmCluster:
    """The running daemons; `environment` makes SLURM's commands talk to them."""

    def __init__(self, folder: Path, *, num_nodes: int, kill_wait: int, grace_time: int, gpu_type: str | None) -> None:
        self.folder = folder
        self.nodes = [f"node{i}" for i in range(1, num_nodes + 1)]
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))
        }
        self.environment["SLURM_CONF"] = str(folder / "slurm.conf")
        self.environment["PATH"] = f"{self.environment['PATH']}:/usr/sbin"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._slurmds: dict[str, subprocess.Popen[bytes]] = {}
        self._write_config(kill_wait=kill_wait, grace_time=grace_time, gpu_type=gpu_type)

    def start(self) -> None:
        """Start all daemons and wait until every node is ready."""
        run = self.folder / "run"
        key, munge_socket = self.folder / "munge.key", run / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munged = ["munged", "-F", "--force", f"--key-file={key}", f"--socket={munge_socket}"]
        munged += [f"--pid-file={run}/munged.pid", f"--seed-file={run}/munged.seed", f"--log-file={run}/munged.log"]
        self._start(munged, "munged")
        wait_for(munge_socket.exists, 20, "munged's socket")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        wait_for(self._are_nodes_ready, 90, "all nodes")

    def start_controller(self) -> None:
        """Start slurmctld; after a stop it knows all jobs from its state folder."""
        self._controller = self._start(["slurmctld", "-D"], "slurmctld")
        wait_for(lambda: "is UP" in self.call("scontrol", "ping", check=False), 30, "slurmctld")

    def stop_controller(self) -> None:
        """Nobody answers from now on; jobs go on."""
        self._controller.terminate()
        self._controller.wait(timeout=30)

    def start_node(self, node: str) -> None:
        """Start a node's slurmd, with a host name and a disk of its own: FOLDER/disks/NODE, which it sees as FOLDER/disk."""
        (self.folder / "disks" / node).mkdir(parents=True, exist_ok=True)
        script = (
            f"mount --bind {self.folder}/hosts /etc/hosts; mount --bind {self.folder}/nsswitch.conf /etc/nsswitch.conf; "
            f"mount --bind {self.folder}/disks/{node} {self.folder}/disk; hostname {node}; exec slurmd -D -N {node}"
        )
        command = ["unshare", "-m", "-u", "--propagation", "private", "sh", "-ec", script]
        self._slurmds[node] = self._start(command, node)

    def kill_node(self, node: str) -> None:
        """What a power cut does: the node's daemon and all its processes are gone at once, and SLURM hears of it."""
        slurmd = self._slurmds.pop(node)
        pids = [slurmd.pid, *self.pids_on(node)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        slurmd.wait()
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=power")

    def pids_on(self, node: str) -> list[int]:
        """All processes of the node's jobs."""
        return [pid for pid, values in _processes() if values.get("SLURMD_NODENAME") == node and self._is_ours(values)]

    def pid_of_rank(self, job_id: str, rank: int) -> int:
        """The first process of a rank of a job: the one that srun started, and that has started the others."""
        pids = self._pids_of_rank(job_id, rank)
        first = [pid for pid in pids if parent_of(pid) not in pids]
        assert len(first) == 1, f"rank {rank} of job {job_id} has the first processes {first}"
        return first[0]

    def has_rank(self, job_id: str, rank: int) -> bool:
        """Whether a rank of a job has a process."""
        return bool(self._pids_of_rank(job_id, rank))

    def _pids_of_rank(self, job_id: str, rank: int) -> list[int]:
        wanted = {"SLURM_JOB_ID": job_id, "SLURM_PROCID": str(rank)}
        # the batch script is a process 0 as well, but of no step that srun has started
        return [
            pid
            for pid, values in _processes()
            if wanted.items() <= values.items() and "SLURM_STEP_ID" in values and self._is_ours(values)
        ]

    def _is_ours(self, values: dict[str, str]) -> bool:
        return values.get("SLURM_CONF") == str(self.folder / "slurm.conf")

    def stop(self) -> None:
        """Cancel all jobs and stop all daemons."""
        self.call("scancel", "--user=root", check=False)
        try:
            wait_for(lambda: not self.call("squeue", "--noheader", check=False).strip(), 30, "the jobs' end")
        except AssertionError:
            for node in self.nodes:
                for pid in self.pids_on(node):
                    os.kill(pid, signal.SIGKILL)
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def call(self, *command: str, check: bool = True) -> str:
        """Run one of SLURM's commands and return what it printed."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if check:
            assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def fields(self, job_id: str) -> dict[str, str]:
        """What scontrol says of the job, such as {"JobState": "RUNNING", "Restarts": "0"}."""
        text = self.call("scontrol", "show", "job", "--oneliner", job_id)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, job_id: str) -> str:
        """The job's state, such as RUNNING."""
        return self.fields(job_id)["JobState"]

    def release(self, job_id: str) -> None:
        """Let a requeued job start soon, and not after the two minutes that SLURM waits.

        Within the second of the requeue its nodes would refuse it: they take it for the attempt that was ended.
        """
        time.sleep(3)
        self.call("scontrol", "update", f"jobid={job_id}", "StartTime=now", check=False)

    def _are_nodes_ready(self) -> bool:
        lines = self.call(
            "sinfo", "--noheader", "--Node", "--format=%N %T %v", "--partition=main", check=False
        ).splitlines()
        ready = [
            line
            for line in lines
            if line.split()[1:2] in (["idle"], ["mixed"]) and line.split()[2:] not in ([], ["N/A"])
        ]
        return len(ready) == len(self.nodes)

    def _start(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "log" / f"{name}.out", "ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(process)
        return process

    def _write_config(self, *, kill_wait: int, grace_time: int, gpu_type: str | None) -> None:
        for name in ("run", "state", "spool", "log", "dev", "disk"):
            (self.folder / name).mkdir()
        count = len(self.nodes)
        ports = free_ports(count + 1)
        addresses = [f"127.0.{1 + i // 200}.{1 + i % 200}" for i in range(count)]
        pairs = list(zip(addresses, self.nodes, strict=True))
        machine = socket.gethostname()
        hosts = ["127.0.0.1 localhost", *(f"{address} {node}" for address, node in pairs), f"127.0.0.1 {machine}"]
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")
        (self.folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        for i in range(8):
            os.mknod(self.folder / "dev" / f"gpu{i}", 0o20666, os.makedev(1, 3))
        type_, gres = (f"Type={gpu_type} ", f"gpu:{gpu_type}:8") if gpu_type else ("", "gpu:8")
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu {type_}File={self.folder}/dev/gpu[0-7]\n")
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={machine} NodeAddr={address} Port={port} CPUs={CPUS} RealMemory=100000 "
            f"Gres={gres} State=UNKNOWN"
            for (address, node), port in zip(pairs, ports[1:], strict=True)
        )
        (self.folder / "slurm.conf").write_text(
            CONFIG.format(
                folder=self.folder,
                machine=machine,
                port=ports[0],
                nodes=nodes,
                kill_wait=kill_wait,
                grace_time=grace_time,
                first_job_id=random.randrange(1000, 60000),
            )
        )


@contextmanager
def slurm_cluster(
    folder: Path, *, num_nodes: int, kill_wait: int = 30, grace_time: int = 60, gpu_type: str | None = None
) -> Iterator[SlurmCluster]:
    """Start a cluster of virtual nodes, and stop it at the end."""
    cluster = SlurmCluster(folder, num_nodes=num_nodes, kill_wait=kill_wait, grace_time=grace_time, gpu_type=gpu_type)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def talking_to(cluster: SlurmCluster) -> Iterator[None]:
    """SLURM's commands, and the jobs that this process submits, go to this cluster."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        del os.environ[name]
    os.environ.update({**cluster.environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def environment_of_jobs(cluster: SlurmCluster) -> Iterator[None]:
    """A fixture: a test talks to the cluster of the fixture `cluster`."""
    with talking_to(cluster):
        yield
    cluster.call("scancel", "--user=root")  # what a failed test has left


def wait_for(condition: Callable[[], object], seconds: float, what: str, longest_pause: float = 0.3) -> None:
    """Wait until `condition()` holds. To ask it costs time of the processor, so it is asked ever more rarely."""
    deadline, pause = time.monotonic() + seconds, min(0.02, longest_pause)
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(pause)
        pause = min(longest_pause, 1.2 * pause)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now, below those of outgoing connections."""
    ports: list[int] = []
    for port in random.sample(range(10000, 19999), 9999):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return sorted(ports)
    raise AssertionError(f"no {count} free ports")


def parent_of(pid: int) -> int:
    """The process that has started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _processes() -> Iterator[tuple[int, dict[str, str]]]:
    """Every process of this machine with its environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            yield int(entry.name), dict(word.split("=", 1) for word in words if "=" in word)


CONFIG = """\
ClusterName=test
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
SlurmctldParameters=node_reg_mem_percent=0,preempt_send_user_signal
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
ReturnToService=2
RebootProgram=/bin/true
SlurmctldTimeout=300
MessageTimeout=100
SlurmdTimeout=300
KillWait={kill_wait}
OverTimeLimit=0
CompleteWait=0
MinJobAge=300
InactiveLimit=0
Waittime=0
TreeWidth=50
MaxArraySize=1001
FirstJobId={first_job_id}
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PropagateResourceLimitsExcept=MEMLOCK,NOFILE
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=REQUEUE GraceTime={grace_time}
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
"""
