"""What can be refused before a job is submitted: each check names the option and the remedy."""

from __future__ import annotations

import os
import secrets
from argparse import Namespace
from pathlib import Path

from . import slurm_commands, status, train_arguments
from .recipe import Recipe, minutes_of
from .sbatch_options import Gpus, check_text, gpu_option

RUNTIMES = ("pyxis", "apptainer")
ACTIVE_STATES = ("running", "pending", "requeued", "suspended", "completing", "configuring")


def check_recipe(recipe: Recipe) -> None:
    """Check all that needs no SLURM: numbers, options, data, the run folder.

    Raises:
        ValueError: for options that contradict each other or that fairseq-train does not know.
        FileNotFoundError: for a data folder that is missing.
        PermissionError: for a run folder that cannot be written to.
    """
    for name, number in (("nodes", recipe.nodes), ("gpus-per-node", recipe.gpus_per_node)):
        if number < 1:
            raise ValueError(f"--{name} must be at least 1, got {number}.")
    if recipe.max_requeues < 0 or recipe.checkpoint_minutes < 0 or recipe.signal_delay < 0:
        raise ValueError("--max-requeues, --checkpoint-minutes and --signal-delay must not be negative.")
    if recipe.preflight_seconds <= 0:
        raise ValueError(f"--preflight-seconds must be positive, got {recipe.preflight_seconds:g}.")
    if recipe.port is not None and not 1024 <= recipe.port < 65535:
        raise ValueError(f"--port must lie between 1024 and 65534, got {recipe.port}.")
    if recipe.container_runtime not in RUNTIMES:
        raise ValueError(f"--container-runtime must be one of {', '.join(RUNTIMES)}, got {recipe.container_runtime!r}.")
    for word in recipe.env:
        if not word.partition("=")[1] or not word.partition("=")[0].isidentifier():
            raise ValueError(f"--env {word.partition('=')[0]!r} is no NAME=VALUE.")  # the value may be a secret
    gpu_option(Gpus(recipe.gpus_per_node, recipe.gpu_type), request=recipe.gpu_request, sbatch=recipe.sbatch_options)
    lines = (
        "name",
        "partition",
        "account",
        "qos",
        "constraint",
        "exclude",
        "gpu_type",
        "container",
        "container_mounts",
    )
    check_text({f"--{name.replace('_', '-')}": getattr(recipe, name) for name in lines})
    check_text({"--run-dir": recipe.run_dir})
    seconds = minutes_of(recipe.time) * 60
    if recipe.signal_delay >= seconds:
        raise ValueError(
            f"--signal-delay ({recipe.signal_delay} s) is not shorter than --time ({recipe.time}): the job would be "
            f"told to stop before it starts."
        )
    parsed = train_arguments.parse(train_arguments.complete(recipe))
    check_data(train_arguments.data_folders(parsed))
    check_splits(parsed)
    check_run_dir(recipe.run_dir)


def check_data(folders: list[Path]) -> None:
    """Refuse data folders that are not there, or hold no binarized text."""
    if not folders:
        raise ValueError("The recipe names no data folder: give it as fairseq-train's first argument (train: data:).")
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(
                f"The recipe's data folder {folder} does not exist: make it with `roberta binarize --destination "
                f"{folder}`, or correct the path."
            )
        if not any(folder.glob("dict*.txt")) and not any(folder.glob("*/dict*.txt")):
            raise FileNotFoundError(
                f"The recipe's data folder {folder} holds no dict.txt: it is no folder that `roberta binarize` or "
                f"fairseq-preprocess has written."
            )


def check_splits(parsed: Namespace) -> None:
    """Refuse pretraining data without a training split in each folder, or without validation data in all of them."""
    if parsed.task != train_arguments.OUR_TASK:
        return
    folders = train_arguments.data_folders(parsed)
    for folder in folders:
        if not (folder / f"{parsed.train_subset}.idx").is_file():
            raise FileNotFoundError(
                f"{folder / parsed.train_subset}.idx does not exist: every data folder needs a training split. Make it "
                f"with `roberta binarize`, or take the folder out of the recipe's data."
            )
    validation = ["valid"] if parsed.combine_valid_subsets else parsed.valid_subset.split(",")
    for split in () if parsed.disable_validation else validation:
        if not any((folder / f"{split}.idx").is_file() for folder in folders):
            raise FileNotFoundError(
                f"No data folder of the recipe has the split {split!r} ({split}.idx), which the run would validate "
                f"on: make it with `roberta binarize`, name another with valid_subset, or set disable_validation."
            )


def check_run_dir(run_dir: Path) -> None:
    """Refuse a run folder that cannot be written to, by writing a file there."""
    folder = run_dir
    while not folder.exists():
        folder = folder.parent
    probe = folder / f".{secrets.token_hex(4)}.tmp"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise PermissionError(
            f"The run folder {run_dir} cannot be written to ({error.strerror}: {folder}): choose another --run-dir, on "
            f"a file system that all nodes share."
        ) from error
    if os.path.lexists(run_dir) and not run_dir.is_dir():
        raise PermissionError(f"The run folder {run_dir} is a file: choose another --run-dir.")


def check_cluster(recipe: Recipe) -> None:
    """Check what only SLURM knows: that it is there, the partition and its size, that the run is not running.

    Raises:
        ValueError: for a partition that is unknown or too small, or a run folder whose job is still active.
    """
    if not slurm_commands.has_slurm():
        raise ValueError("sbatch is not installed here: submit from a login node of the cluster, or use --dry-run.")
    known = {partition.name: partition.num_nodes for partition in slurm_commands.partitions()}
    if recipe.partition is not None:
        names = recipe.partition.split(",")
        missing = [name for name in names if name not in known]
        if missing:
            raise ValueError(
                f"The cluster has no partition {missing[0]!r}: --partition can be {', '.join(sorted(known))}."
            )
        most = max(known[name] for name in names)
        if recipe.nodes > most:
            raise ValueError(
                f"--nodes is {recipe.nodes}, and the partition {recipe.partition} has {most} nodes in all."
            )
    before = status.read_launch(recipe.run_dir)
    if before is not None and before.job_id is not None:
        state = slurm_commands.job_state(before.job_id)
        if state in ACTIVE_STATES:
            raise ValueError(
                f"Job {before.job_id} of the run folder {recipe.run_dir} is still {state}: two trainings would write "
                f"the same checkpoints. Cancel it with `scancel {before.job_id}`, or choose another --run-dir."
            )
