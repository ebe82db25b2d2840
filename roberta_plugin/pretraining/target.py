"""Where a pretraining runs: this machine, ranks of SLURM or torchrun, or, for a dry run, the recipe's own hardware."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.pretraining.choice import Machine
from roberta_plugin.pretraining.ranks import slurm_ranks
from roberta_plugin.pretraining.recipe import Recipe
from roberta_plugin.pretraining.record import read_pretraining
from roberta_plugin.pretraining.request import Request
from roberta_plugin.runs import RUN, read_record
from roberta_plugin.settings import short


@dataclass(frozen=True)
class Target:
    """Where the training runs."""

    machine: Machine
    described: str
    ranks: LaunchSettings | None = None
    is_here: bool = True  # False if nothing is known about its speed


def find_machine(folder: Path, options: Mapping[str, str], *, torchrun: int) -> Machine:
    """This machine, with the cores for which the training in the folder was planned, so that it keeps its length."""
    number = options.get("--distributed-world-size", "")
    machine = Machine.detect(cpu="--cpu" in options, gpus=torchrun or (int(number) if number.isdecimal() else None))
    cores = (read_pretraining(folder) or {}).get("cores")
    return replace(machine, cores=int(cores)) if cores else machine


def find_target(request: Request, recipe: Recipe, here: Machine) -> Target:
    """Where the recipe is trained.

    Raises:
        ValueError: if it needs a GPU, and there is none.
    """
    settings = request.settings
    if settings.slurm is not None:
        ranks = slurm_ranks(settings.slurm, recipe, settings.folder)
        node = Machine(ranks.cpus_per_gpu, has_bf16=True)  # which the nodes use where they have it
        if recipe.device == "gpu":
            node = replace(node, gpus=ranks.num_gpus, gpu_memory_gb=recipe.gpu_memory_gb)
        return Target(node, f"{ranks.nodes} x {ranks.gpus_per_node} ranks by SLURM", ranks)
    ranks_here = None
    if request.torchrun:
        ranks_here = LaunchSettings(output_dir=settings.folder, train=(), gpus_per_node=request.torchrun)
    if recipe.device == "cpu" or here.gpus:
        return Target(here, here.described(), ranks_here)
    if not settings.dry_run:
        raise ValueError(
            f"Recipe {recipe.name} needs a GPU, and there is none: choose another by --recipe, or start it on a "
            "cluster by --slurm. --dry-run shows its command."
        )
    theirs = replace(here, has_bf16=True, gpus=recipe.gpus, gpu_memory_gb=recipe.gpu_memory_gb)
    described = f"{here.described()}, the command is for {recipe.hardware}"
    return Target(theirs, described, ranks_here, is_here=False)


def first_machine(folder: Path) -> Machine | None:
    """The machine for which the launched training in a folder was planned; None if there is none, or none on record."""
    if (record := read_record(folder)) is None or "machine" not in record.asked:
        return None
    value = record.asked["machine"]
    try:
        return Machine(**{**value, "cores": operator.index(value["cores"])})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / RUN}: 'machine' is {short(value)}, which describes no machine: delete it from 'asked', and the "
            "training is planned for the present one."
        ) from error
