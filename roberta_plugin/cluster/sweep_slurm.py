"""The runs of a sweep as one SLURM job array, through submitit: a run is a task of the array, on one machine.

A preempted or timed-out task is requeued and goes on from its run's last checkpoint. Which run is in which task is kept
in jobs.json, so that the next `roberta sweep` leaves alone what still waits in the queue.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.cluster import slurm_commands
from roberta_plugin.cluster.grid import SBATCH
from roberta_plugin.cluster.json_files import read_json
from roberta_plugin.cluster.recipe import minutes_of
from roberta_plugin.cluster.sbatch_options import check_text, gpu_option, parse_gpus, parse_sbatch
from roberta_plugin.cluster.sweep_run import FAILED, Attempt, RunFolder
from roberta_plugin.data.atomic_files import atomic_write

_JOBS = "jobs.json"
_MAX_TIMEOUTS = 100  # a run may need many time limits
_COUNTS = {"cpus_per_task", "signal_delay_s"}


class SweepJob:
    """What a task of the array calls: do one run; stop in order when SLURM takes the machine away."""

    def __init__(self) -> None:
        self._attempt: Attempt | None = None

    def __call__(self, folder: RunFolder) -> str:
        """The state the run is left in, or "elsewhere" if another process is at it.

        Raises:
            RuntimeError: if the run has failed, so that the task of the array fails too.
        """
        self._attempt = folder.start()
        state = self._attempt.wait() if self._attempt else "elsewhere"
        if state == FAILED:
            raise RuntimeError(
                f"{folder.run.name}: {(folder.failure() or {}).get('reason')}; see {folder.path}/log.txt"
            )
        return state

    def checkpoint(self, folder: RunFolder) -> Any:
        """Called by submitit when the task is preempted or its time is up: stop, and be called again later."""
        import submitit

        if self._attempt:
            self._attempt.stop()
        return submitit.helpers.DelayedSubmission(SweepJob(), folder)


def submit(
    folders: Sequence[RunFolder], *, root: Path, code: Path, num_parallel: int, settings: Mapping[str, str]
) -> dict[str, str]:
    """Submit the runs as one array of which at most `num_parallel` tasks run at a time.

    Args:
        folders: prepared runs.
        root: folder of the sweep, on a file system that all nodes see.
        code: the code that the tasks run (`snapshot.py`).
        num_parallel: limit on running tasks.
        settings: what each run asks for: section `slurm` of the grid file.

    Returns:
        The job id of each run, by the run's name.

    Raises:
        FileNotFoundError: if this machine has no sbatch.
        ValueError: if sbatch refuses, or the settings are none.
    """
    if shutil.which("sbatch") is None:
        raise FileNotFoundError(
            "There is no sbatch on this machine: run the command on a login node of the cluster, or leave out --slurm "
            "to do the runs here."
        )
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    check_text({"--folder": root})
    parameters = parameters_of(settings)
    path = f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1"
    parameters["setup"] = [path, *parameters.get("setup", [])]
    executor = submitit.SlurmExecutor(
        folder=root / "submitit", max_num_timeout=_MAX_TIMEOUTS, python=f"{shlex.quote(sys.executable)} -P"
    )
    executor.update_parameters(
        job_name=root.name,
        array_parallelism=num_parallel,
        ntasks_per_node=1,
        nodes=1,
        wckey=None,
        **parameters,
    )
    try:
        with slurm_commands.submission_environment(given={name.removeprefix(SBATCH) for name in settings}):
            jobs = executor.map_array(SweepJob(), folders)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
        raise ValueError(f"sbatch refused the array: {str(error).strip()}") from error
    submitted = {folder.run.name: str(job.job_id) for folder, job in zip(folders, jobs, strict=True)}
    with atomic_write(root / _JOBS, "w") as file:
        json.dump({**known_jobs(root), **submitted}, file, indent=2)
    return submitted


def parameters_of(settings: Mapping[str, str]) -> dict[str, Any]:
    """Section `slurm` of a grid file as submitit's parameters.

    Raises:
        ValueError: for a number that is none, or a time limit that is missing or that SLURM would not read.
    """
    if "time" not in settings:
        raise ValueError(
            "The grid file gives its runs no time limit, which --slurm needs: write `slurm: {time: 8:00:00}`; a run "
            "that needs longer is requeued and goes on."
        )
    sbatch = parse_sbatch(
        (f"{name.removeprefix(SBATCH)}={value}" for name, value in settings.items() if name.startswith(SBATCH)),
        name="slurm, sbatch in the grid file:",
    )
    ours = ("gpus_per_node", "gpu_request")
    parameters: dict[str, Any] = {
        name: value for name, value in settings.items() if not name.startswith(SBATCH) and name not in ours
    }
    check_text({f"slurm, {name}": value for name, value in parameters.items() if name != "setup"})
    parameters["time"] = minutes_of(settings["time"])
    if "gpus_per_node" in settings:
        gpus = parse_gpus(settings["gpus_per_node"], name="slurm, gpus_per_node in the grid file")
        sbatch |= gpu_option(gpus, request=settings.get("gpu_request", "gpus-per-node"), sbatch=sbatch)
    if sbatch:
        parameters["additional_parameters"] = sbatch
    if "setup" in settings:
        parameters["setup"] = [settings["setup"]]
    for name in _COUNTS & settings.keys():
        if not settings[name].isdigit():
            raise ValueError(f"slurm, {name} in the grid file must be a whole number, got {settings[name]!r}.")
        parameters[name] = int(settings[name])
    return parameters


def known_jobs(root: Path) -> dict[str, str]:
    """Job ids by the runs' names, of all submissions from this folder."""
    remedy = "cancel the sweep's jobs that still wait, if any (squeue --me), and delete the file"
    return {name: str(job) for name, job in (read_json(root / _JOBS, keys=(), remedy=remedy) or {}).items()}


def queued_runs(root: Path) -> set[str]:
    """Names of the runs that wait or run in SLURM's queue."""
    jobs = known_jobs(root)
    if not jobs:
        return set()
    try:
        alive = slurm_commands.queued_tasks({job.partition("_")[0] for job in jobs.values()})
    except OSError as error:  # to guess would mean to submit a run twice
        raise ChildProcessError(f"{root / _JOBS} names jobs of SLURM, and SLURM cannot be asked: {error}") from error
    return {name for name, job in jobs.items() if job in alive}
