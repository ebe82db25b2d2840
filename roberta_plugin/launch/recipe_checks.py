"""The checks of a recipe before its job is submitted: each refusal names the option and the remedy."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.launch.resources import check_resources, check_text
from roberta_plugin.launch.resume_changes import changed_settings
from roberta_plugin.launch.run_folder import ITSELF, own_jobs
from roberta_plugin.record import refuse
from roberta_plugin.runs import read_record


def check_recipe(recipe: LaunchSettings) -> tuple[str, ...]:
    """Check all that needs no SLURM: numbers, options, data, the run folder; return fairseq-train's arguments.

    Raises:
        ValueError: for options that contradict each other or that fairseq-train does not know.
        FileNotFoundError: for a data folder that is missing.
        PermissionError: for a run folder that cannot be written to.
    """
    check_resources(recipe)
    texts = {name: getattr(recipe, name) for name in ("name", "container", "container_mounts", "output_dir")}
    check_text({f"--{name.replace('_', '-')}": text for name, text in texts.items()})
    arguments = complete(recipe)
    train_arguments.checked(arguments)
    check_run_dir(recipe)
    return arguments


def check_run_dir(recipe: LaunchSettings) -> None:
    """Refuse a run folder that cannot be written to, or whose name something else would read otherwise."""
    output_dir = recipe.output_dir
    reasons = {
        os.pathsep: "the job finds the run's copy of the code by PYTHONPATH, where a colon separates folders",
        "%": "SLURM replaces patterns such as %j in the names of its logs",
        "\\": "SLURM drops backslashes in the names of its logs",
        **({",": "it separates the folders that a container sees"} if recipe.container is not None else {}),
    }
    for character, reason in reasons.items():
        if character in str(output_dir.absolute()):
            raise ValueError(f"--output-dir {output_dir}: its full path must not hold {character!r}, because {reason}.")
    folder = output_dir
    while not folder.exists():
        folder = folder.parent
    probe = folder / f".{secrets.token_hex(4)}.tmp"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise PermissionError(
            f"The run folder {output_dir} cannot be written to ({error.strerror}: {folder}): choose another "
            f"--output-dir, on a file system that all nodes share."
        ) from error
    if os.path.lexists(output_dir) and not output_dir.is_dir():
        raise PermissionError(f"The run folder {output_dir} is a file: choose another --output-dir.")


def check_no_job(output_dir: Path) -> None:
    """Refuse a run folder whose job is still active."""
    if active := active_job(output_dir):
        job_id, state = active
        raise ValueError(
            f"Job {job_id} of the run folder {output_dir} is still {state}: two trainings would write the "
            f"same checkpoints. Cancel it with `scancel {job_id}`, or choose another --output-dir."
        )


def active_job(output_dir: Path) -> tuple[str, str] | None:
    """The job of a run that waits or runs, and its state."""
    job_id = own_jobs(output_dir).get(ITSELF)
    job = slurm_commands.jobs([job_id]).get(job_id) if job_id else None
    return (job_id, job.state) if job_id and job and job.is_active else None


def check_changes(
    recipe: LaunchSettings, arguments: tuple[str, ...], *, accepted_by: str = "--accept-changes"
) -> tuple[str, ...]:
    """All accepted changes since the run began; the changes of this launch are the last.

    A run folder keeps the settings that it began with, except those that may change (`resume_policy.py`). `accepted_by`
    is the option of the command that accepts all others; empty: it has none.

    Raises:
        ValueError: for a change that was not accepted, with the old and the new value.
    """
    before = read_record(recipe.output_dir)
    if before is None:
        return ()
    changes = changed_settings(before, recipe.record(arguments, changes=(), snapshot=""))
    if not recipe.accept_changes:
        refuse(
            f"The run folder {recipe.output_dir} was begun with other settings",
            changes,
            "Keep them (the number of GPUs may change), or choose another --output-dir"
            + (f", or accept the change by {accepted_by}." if accepted_by else "."),
        )
    return (*before.changes, *map(str, changes))
