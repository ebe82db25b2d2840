"""Checks before a job is submitted; each refusal names the option and the remedy.

Also changes of settings: a run folder keeps those that it began with, except those that concern the machines, such as
the number of GPUs or the last update. Any other difference is refused and shown, unless `--accept-changes` is given;
then the launch records it.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any

from roberta_plugin.launch import status
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.record import differences, option_name, refuse
from roberta_plugin.training import arguments as train_arguments
from roberta_plugin.training import slurm_commands
from roberta_plugin.training.arguments import check_options
from roberta_plugin.training.resources import Resources, check_resources, check_text

# By the beginnings of their names in fairseq's namespace.
FREE = (
    # how an update's batch is shared out and computed; the batch is compared instead
    *("batch_size", "required_batch_size", "max_tokens", "update_freq", "update_seq", "num_workers", "cpu"),
    *("data_buffer_size", "distributed", "device_id", "ddp", "bucket_cap", "fix_batches", "find_unused", "broadcast"),
    *("nprocs", "tpu", "fp16_", "min_loss_scale", "threshold_loss_scale", "on_cpu_convert", "empty_cache"),
    *("attention_backend", "compile", "memory_efficient", "all_gather", "heartbeat", "localsgd", "slowmo"),
    *("pipeline", "zero", "use_sharded"),
    # logging, saving, validation, and the end of the run
    *("log", "tensorboard", "wandb", "azureml", "aim", "no_progress", "profile", "plasma", "suppress"),
    *("reset_logging", "save", "keep", "no_", "checkpoint", "write_checkpoints"),
    *("load_checkpoint", "best_checkpoint", "maximize_best", "valid", "disable_valid", "ignore_unused_valid"),
    *("max_valid", "fixed_validation", "skip_invalid", "patience", "max_update", "max_epoch", "stop", "user_dir"),
    *("model_parallel", "use_plasma", "simul", "quant", "async", "combine_valid", "dataset_impl", "continue_once"),
    *("finetune_from", "use_bmuf", "criterion_log"),
)
COMPARED = {"no_mask", "no_shuffle"}  # though they begin like one of FREE


def check_recipe(recipe: LaunchSettings) -> None:
    """Check all that needs no SLURM: numbers, options, data, the run folder.

    Raises:
        ValueError: for options that contradict each other or that fairseq-train does not know.
        FileNotFoundError: for a data folder that is missing.
        PermissionError: for a run folder that cannot be written to.
    """
    check_resources(recipe)
    check_container(recipe)
    texts = {name: getattr(recipe, name) for name in ("name", "container", "container_mounts", "output_dir")}
    check_text({f"--{name.replace('_', '-')}": text for name, text in texts.items()})
    parsed = train_arguments.parse(complete(recipe))
    check_options(parsed)
    train_arguments.check_data(parsed)
    check_run_dir(recipe.output_dir)


def check_container(recipe: LaunchSettings) -> None:
    """Refuse a run folder that a container could not see."""
    if recipe.container is not None and "," in str(recipe.output_dir.absolute()):
        raise ValueError(
            f"--output-dir {recipe.output_dir}: its full path must not hold a comma, which separates the folders that "
            "a container sees."
        )


def check_run_dir(output_dir: Path) -> None:
    """Refuse a run folder that cannot be written to, or whose name PYTHONPATH or SLURM would read otherwise."""
    reasons = {
        os.pathsep: "the job finds the run's copy of the code by PYTHONPATH, where a colon separates folders",
        "%": "SLURM replaces patterns such as %j in the names of its logs",
        "\\": "SLURM drops backslashes in the names of its logs",
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


def check_cluster(recipe: LaunchSettings) -> None:
    """Check against SLURM: it is installed, the partition exists and is large enough, the run is not running.

    Raises:
        ValueError: for a partition that is unknown or too small, or a run folder whose job is still active.
    """
    check_partition(recipe)
    before = status.read_launch(recipe.output_dir)
    if before is not None and before.job_id is not None:
        state = slurm_commands.job_state(before.job_id)
        if state in slurm_commands.ACTIVE_STATES:
            raise ValueError(
                f"Job {before.job_id} of the run folder {recipe.output_dir} is still {state}: two trainings would "
                f"write the same checkpoints. Cancel it with `scancel {before.job_id}`, or choose another --output-dir."
            )


def check_partition(resources: Resources) -> None:
    """Refuse a partition that the cluster does not have, or that has fewer nodes than are asked for.

    Raises:
        ValueError: naming the partitions that there are; also where SLURM cannot be asked.
    """
    try:
        known = {partition.name: partition.num_nodes for partition in slurm_commands.partitions()}
    except OSError as error:
        reason = str(error).splitlines()[0].partition(": run")[0]
        raise ValueError(
            f"No SLURM here ({reason}). Submit from a login node of the cluster, or "
            "look at the job with --dry-run; `roberta train` and `roberta pretrain` train on this machine."
        ) from error
    if resources.partition is None:
        return
    names = resources.partition.split(",")
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"The cluster has no partition {missing[0]!r}: --partition can be {', '.join(sorted(known))}.")
    most = max(known[name] for name in names)
    if resources.nodes > most:
        raise ValueError(
            f"--nodes is {resources.nodes}, and the partition {resources.partition} has {most} nodes in all."
        )


def check_changes(recipe: LaunchSettings, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """All accepted changes since the run began, those of this launch last.

    Raises:
        ValueError: for a change that was not, with the old and the new value.
    """
    before = status.read_launch(recipe.output_dir)
    if before is None:
        return ()
    from roberta_plugin.fairseq_workarounds.command_line import without_removed

    old, new = ({name: getattr(run, name) for name in ("batch_sequences", "batch_tokens")} for run in (before, recipe))
    is_batch_set = any(new.values())
    if before.arguments:
        old |= _options(tuple(without_removed(before.arguments)))
        new |= _options(arguments)
        for name in () if is_batch_set else ("batch_size", "max_tokens"):
            was, now = (int(options[name] or 0) * int(options["update_freq"][0]) for options in (old, new))
            if was != now:  # the number of GPUs alone may change the batch
                batch = f"{option_name(name)} x --update-freq x GPUs"
                old[batch], new[batch] = was * before.num_gpus, now * recipe.num_gpus
    found = differences(old, new, free=lambda name: name.startswith(FREE) and name not in COMPARED)
    if not recipe.accept_changes:
        refuse(
            f"The run folder {recipe.output_dir} was begun with other settings",
            found,
            "Keep them (the number of GPUs may change), choose another --output-dir, or accept the change by "
            "--accept-changes.",
        )
    return (*before.changes, *map(str, found))


def _options(arguments: tuple[str, ...]) -> dict[str, Any]:
    """All options of fairseq-train, by their names in its namespace; the folders of the data by absolute paths."""
    options = vars(train_arguments.parse(arguments))
    data = re.sub(r"[^,:@]+", lambda folder: str(Path(folder.group()).absolute()), options["data"] or "")
    return {**options, "data": data}
