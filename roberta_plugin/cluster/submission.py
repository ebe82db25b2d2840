"""Recipe -> sbatch script -> job, by submitit; a dry run returns the same script and commands and writes nothing."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from . import checks, status, train_arguments
from .preemption import PREEMPTION
from .recipe import Recipe, minutes_of
from .rendezvous import Place, distributed_arguments, port_of
from .snapshot import arguments_in_snapshot, next_folder, take_snapshot
from .training_job import TrainingJob


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job, or what it would be: `job_id` is None after a dry run."""

    job_id: str | None
    run_dir: Path
    script: str
    commands: tuple[str, ...]


class _Executor(submitit.SlurmExecutor):
    """submitit's executor, which also serves where SLURM is not installed: for a dry run."""

    @classmethod
    def affinity(cls) -> int:
        """Usable; whether there is an sbatch is checked by `checks.check_cluster`."""
        return 2


def submit(recipe: Recipe, *, dry_run: bool = False, config: Path | None = None) -> Submission:
    """Check the recipe, copy code and config into the run folder, and submit the job.

    Args:
        recipe: what to train, and on what.
        dry_run: only check, and return the script and the commands.
        config: the file that the recipe was read from, kept in the run folder.

    Raises:
        ValueError: for a recipe that cannot work, with the remedy; also if sbatch refuses it.
        FileNotFoundError: for a missing data folder.
        PermissionError: for a run folder that cannot be written to.
    """
    recipe = dataclasses.replace(recipe, run_dir=recipe.run_dir.expanduser().absolute())
    checks.check_recipe(recipe)
    arguments = train_arguments.complete(recipe)
    _check_same_batch(recipe)
    snapshot = next_folder(recipe.run_dir)
    executor = _Executor(recipe.run_dir / "logs", max_num_timeout=recipe.max_requeues, python=_python(recipe))
    executor.update_parameters(**sbatch_parameters(recipe, snapshot=snapshot))
    script = executor._make_submission_file_text(executor._submitit_command_str, "")
    submission = Submission(
        job_id=None,
        run_dir=recipe.run_dir,
        script=script,
        commands=(f"sbatch {recipe.run_dir}/logs/JOB_submission.sh", rank_command(recipe, arguments)),
    )
    if dry_run:
        return submission
    checks.check_cluster(recipe)
    recipe.save_dir.mkdir(parents=True, exist_ok=True)
    taken = take_snapshot(recipe, arguments=arguments, config=config)
    assert taken == snapshot
    job = TrainingJob(recipe=recipe, arguments=arguments_in_snapshot(arguments, snapshot=snapshot))
    try:
        job_id = str(executor.submit(job).job_id)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
        raise ValueError(f"sbatch refused the job: {str(error).strip()}") from error
    status.write_launch(
        recipe.run_dir,
        status.Launch(
            job_id=job_id,
            name=recipe.job_name,
            num_gpus=recipe.num_gpus,
            batch_sequences=recipe.batch_sequences,
            batch_tokens=recipe.batch_tokens,
            snapshot=str(snapshot),
        ),
    )
    return dataclasses.replace(submission, job_id=job_id)


def sbatch_parameters(recipe: Recipe, *, snapshot: Path) -> dict[str, Any]:
    """The recipe's resources in submitit's words."""
    parameters: dict[str, Any] = {
        "job_name": recipe.job_name,
        "nodes": recipe.nodes,
        "ntasks_per_node": recipe.gpus_per_node,
        "cpus_per_task": recipe.cpus_per_gpu,
        "time": minutes_of(recipe.time),
        "signal_delay_s": recipe.signal_delay,
        "wckey": None,  # submitit's default is one that many clusters do not know
        "setup": setup_lines(recipe, snapshot=snapshot),
        "teardown": restart_lines(recipe),
        "srun_args": srun_arguments(recipe),
        # --distribution=block: ranks fill one node after the other, as rendezvous.py expects
        "additional_parameters": {
            "requeue": True,
            "distribution": "block",
            **dict(word.split("=", 1) for word in recipe.sbatch),
        },
    }
    if not recipe.is_cpu:
        parameters["gpus_per_node"] = recipe.gpus_per_node
    if recipe.mem_gb is not None:
        parameters["mem"] = f"{recipe.mem_gb}GB"
    for name in ("partition", "account", "qos", "constraint", "exclude"):
        if getattr(recipe, name) is not None:
            parameters[name] = getattr(recipe, name)
    return parameters


def srun_arguments(recipe: Recipe) -> list[str]:
    """How the ranks are started: one that fails ends all, their logs go on after a restart."""
    arguments = ["--kill-on-bad-exit=1", "--open-mode=append", f"--cpus-per-task={recipe.cpus_per_gpu}"]
    if recipe.container is not None and recipe.container_runtime == "pyxis":
        arguments.append(f"--container-image={recipe.container}")
        mounts = [f"{recipe.run_dir}:{recipe.run_dir}", recipe.container_mounts]
        arguments.append(f"--container-mounts={','.join(mount for mount in mounts if mount)}")
    return arguments


def setup_lines(recipe: Recipe, *, snapshot: Path) -> list[str]:
    """The batch script before srun: the job's environment, and bash outlives the SIGTERM that its ranks get."""
    lines = ["trap : TERM", f"export PYTHONPATH={shlex.quote(str(snapshot / 'code'))}${{PYTHONPATH:+:$PYTHONPATH}}"]
    for word in recipe.env:
        name, _, value = word.partition("=")
        lines.append(f"export {name}={shlex.quote(value)}")
    return [*lines, *recipe.setup]


def restart_lines(recipe: Recipe) -> list[str]:
    """The batch script after srun: start again what failed in the midst of training, and nothing else.

    A failure before the first update of an attempt would only be repeated, unless it is the preemption signal, which
    ends a rank that has not come as far as noting it; a job that rank 0 has requeued says so in its status; one that
    its user has cancelled is neither running nor at its time limit.
    """
    status_file = shlex.quote(str(recipe.run_dir / status.STATUS_FILE))
    return [
        "code=$?",
        "attempt=${SLURM_RESTART_COUNT:-0}",
        f"if {{ [ $code -eq {128 + PREEMPTION} ] ||",
        f'  {{ [ $code -ne 0 ] && grep -qs \'"phase": "training"\' {status_file} &&',
        f'  grep -qs "\\"attempt\\": $attempt," {status_file}; }}; }} &&',
        "  scontrol show job --oneliner $SLURM_JOB_ID | grep -Eq 'JobState=RUNNING|Reason=TimeLimit'; then",
        f"  if [ $attempt -lt {recipe.max_requeues} ]; then",
        '    echo "srun ended with code $code: the job starts again from its last checkpoint"',
        "    scontrol requeue $SLURM_JOB_ID",
        "  else",
        f'    echo "srun ended with code $code, and the job has started again $attempt times, which --max-requeues'
        f' {recipe.max_requeues} allows no more" >&2',
        "  fi",
        "fi",
        "exit $code",
    ]


def rank_command(recipe: Recipe, arguments: tuple[str, ...]) -> str:
    """The fairseq-train command that a rank amounts to, with SLURM's variables for what differs between ranks."""
    place = Place(
        rank=0,
        world_size=recipe.num_gpus,
        local_rank=0,
        ranks_per_node=recipe.gpus_per_node,
        hosts=("FIRST-NODE",),
        port=recipe.port or port_of(recipe.run_dir),
    )
    own = distributed_arguments(place, is_cpu=recipe.is_cpu)
    for option, variable in (("--distributed-rank", "$SLURM_PROCID"), ("--device-id", "$SLURM_LOCALID")):
        if option in own and not (option == "--device-id" and recipe.is_cpu):
            own[own.index(option) + 1] = variable
    return f"fairseq-train {shlex.join(arguments)} {' '.join(own)}"


def _python(recipe: Recipe) -> str:
    """Python, which must not look into the working directory first: that would be the checkout, not the snapshot."""
    if recipe.container is None:
        return f"{shlex.quote(sys.executable)} -P"
    if recipe.container_runtime == "pyxis":
        return "python3 -P"
    mounts = [f"--bind {shlex.quote(mount)}" for mount in (recipe.container_mounts or "").split(",") if mount]
    run_dir = f"--bind {shlex.quote(str(recipe.run_dir))}"
    return " ".join(["apptainer exec --nv", run_dir, *mounts, shlex.quote(recipe.container), "python3 -P"])


def _check_same_batch(recipe: Recipe) -> None:
    """Refuse to go on with another effective batch than the run began with."""
    before = status.read_launch(recipe.run_dir)
    if before is None or (recipe.batch_sequences, recipe.batch_tokens) == (before.batch_sequences, before.batch_tokens):
        return
    raise ValueError(
        f"The run folder {recipe.run_dir} was begun with --batch-sequences {before.batch_sequences} and --batch-tokens "
        f"{before.batch_tokens}, not {recipe.batch_sequences} and {recipe.batch_tokens}: keep the effective batch (the "
        f"number of GPUs may change), or choose another --run-dir."
    )
