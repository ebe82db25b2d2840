"""Recipe -> sbatch script -> job, by submitit; a dry run returns the same script and commands and writes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from roberta_plugin.launch import checks, settings_changes, status
from roberta_plugin.launch.arguments import complete
from roberta_plugin.launch.batch_script import END_LINES, NODE_PYTHON, setup_lines
from roberta_plugin.launch.job import TrainingJob
from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.launch.rendezvous import RankInfo, distributed_arguments, port_of
from roberta_plugin.launch.snapshot import arguments_in_snapshot, next_folder, take_snapshot, without_secrets
from roberta_plugin.training.job_environment import dropped_variables, keep_secrets
from roberta_plugin.training.resources import Resources, submitit_parameters
from roberta_plugin.training.slurm_commands import submission_environment


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job, or what it would be: `job_id` is None after a dry run."""

    job_id: str | None
    output_dir: Path
    script: str
    commands: tuple[str, ...]


class _Executor(submitit.SlurmExecutor):
    """submitit's executor, which also serves where SLURM is not installed: for a dry run."""

    @classmethod
    def affinity(cls) -> int:
        """Usable; whether there is an sbatch is checked by `checks.check_cluster`."""
        return 2


def launch(recipe: LaunchSettings, *, dry_run: bool = False, config: Path | None = None) -> Submission:
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
    recipe = dataclasses.replace(
        recipe,
        output_dir=recipe.output_dir.expanduser().absolute(),
        packed_env=recipe.packed_env and recipe.packed_env.expanduser().absolute(),
        env=keep_secrets(recipe.env),
    )
    checks.check_recipe(recipe)
    arguments = complete(recipe)
    changes = settings_changes.check(recipe, arguments)
    snapshot = next_folder(recipe.output_dir)
    executor = _Executor(recipe.output_dir / "logs", python=_python(recipe))
    executor.update_parameters(**sbatch_parameters(recipe, snapshot=snapshot))
    script = executor._make_submission_file_text(executor._submitit_command_str, "")
    submission = Submission(
        job_id=None,
        output_dir=recipe.output_dir,
        script=script,
        commands=(shlex.join(["sbatch", f"{recipe.output_dir}/logs/JOB_submission.sh"]), rank_command(recipe, arguments)),
    )
    if dry_run:
        return submission
    checks.check_cluster(recipe)
    recipe.save_dir.mkdir(parents=True, exist_ok=True)
    taken = take_snapshot(recipe, arguments=arguments, config=config)
    assert taken == snapshot
    job = TrainingJob(recipe=without_secrets(recipe), arguments=arguments_in_snapshot(arguments, snapshot=snapshot))
    with calling_sbatch(recipe):
        job_id = str(executor.submit(job).job_id)
    status.write_launch(
        recipe.output_dir,
        status.Launch(
            job_id=job_id,
            name=recipe.job_name,
            num_gpus=recipe.num_gpus,
            batch_sequences=recipe.batch_sequences,
            batch_tokens=recipe.batch_tokens,
            snapshot=str(snapshot),
            arguments=arguments,
            changes=changes,
        ),
    )
    return dataclasses.replace(submission, job_id=job_id)


@contextlib.contextmanager
def calling_sbatch(resources: Resources) -> Iterator[None]:
    """Call sbatch, through submitit, while this is entered: without what it would take from the job that we run in.

    The job inherits this process's environment by `resources.inherit`.

    Raises:
        ValueError: with sbatch's reason, if it refuses.
    """
    given = {name for name in ("account", "partition", "qos") if getattr(resources, name)} | set(
        resources.sbatch_options
    )
    try:
        with submission_environment(given=given, dropped=dropped_variables(resources.env, resources.inherit)):
            yield
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
        raise ValueError(f"sbatch refused the job: {str(error).strip()}") from error


def sbatch_parameters(recipe: LaunchSettings, *, snapshot: Path) -> dict[str, Any]:
    """submitit's parameters for the recipe."""
    parameters = submitit_parameters(recipe, ntasks_per_node=recipe.gpus_per_node, has_gpus=not recipe.is_cpu)
    # --distribution=block: ranks fill one node after the other, as rendezvous.py expects
    parameters["additional_parameters"] = {"distribution": "block", **parameters["additional_parameters"]}
    if recipe.min_nodes is not None:
        # of a range, SLURM gives no more nodes than --ntasks-per-node times the fewest: srun alone divides the node
        parameters["additional_parameters"]["nodes"] = f"{recipe.min_nodes}-{recipe.nodes}"
        parameters["cpus_per_task"] *= parameters.pop("ntasks_per_node")
    return parameters | {
        "job_name": recipe.job_name,
        "stderr_to_stdout": True,
        "setup": setup_lines(recipe, snapshot=snapshot),
        "teardown": END_LINES,
        "srun_args": srun_arguments(recipe),
    }


def srun_arguments(recipe: LaunchSettings) -> list[str]:
    """How the ranks are started: one that fails ends all, the logs of the nodes go on after a restart."""
    logs = f"{recipe.output_dir}/logs/%j_%n_log.out"  # one for each node, and its lines with the ranks' numbers
    arguments = ["--kill-on-bad-exit=1", "--open-mode=append", "--label", f"--output={logs}"]
    arguments.append(f"--cpus-per-task={recipe.cpus_per_gpu}")
    if recipe.min_nodes is not None:
        arguments.append(f"--ntasks-per-node={recipe.gpus_per_node}")
    if recipe.container is not None and recipe.container_runtime == "pyxis":
        arguments.append(f"--container-image={recipe.container}")
        mounts = [f"{recipe.output_dir}:{recipe.output_dir}", recipe.container_mounts]
        arguments.append(f"--container-mounts={','.join(mount for mount in mounts if mount)}")
    return arguments


def rank_command(recipe: LaunchSettings, arguments: tuple[str, ...]) -> str:
    """The fairseq-train command that a rank amounts to, with SLURM's variables for what differs between ranks."""
    rank_info = RankInfo(
        rank=0,
        world_size=recipe.num_gpus,
        local_rank=0,
        ranks_per_node=recipe.gpus_per_node,
        hosts=("FIRST-NODE",),
        port=recipe.port or port_of(recipe.output_dir),
    )
    own = distributed_arguments(rank_info, is_cpu=recipe.is_cpu)
    for option, variable in (("--distributed-rank", "$SLURM_PROCID"), ("--device-id", "$SLURM_LOCALID")):
        if option in own and not (option == "--device-id" and recipe.is_cpu):
            own[own.index(option) + 1] = variable
    return f"fairseq-train {shlex.join(arguments)} {' '.join(own)}"


def program_of(resources: Resources) -> str:
    """Python of the job: this one, or that of its conda environment."""
    return "python3 -P" if resources.conda else f"{shlex.quote(sys.executable)} -P"


def _python(recipe: LaunchSettings) -> str:
    """Python, which must not look into the working directory first: that would be the checkout, not the snapshot."""
    if recipe.packed_env is not None:
        return f"{NODE_PYTHON} -P"
    if recipe.container is None:
        return program_of(recipe)
    if recipe.container_runtime == "pyxis":
        return "python3 -P"
    mounts = [f"--bind {shlex.quote(mount)}" for mount in (recipe.container_mounts or "").split(",") if mount]
    output_dir = f"--bind {shlex.quote(str(recipe.output_dir))}"
    return " ".join(["apptainer exec --nv", output_dir, *mounts, shlex.quote(recipe.container), "python3 -P"])
