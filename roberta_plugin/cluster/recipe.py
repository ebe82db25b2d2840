"""Config file + flags -> Recipe: what `fairseq-train` is to do, and on which machines.

The file is YAML (`options_file.py`). `train` holds fairseq-train's options by name (with - or _, without the dashes),
all other keys are fields of `Recipe`; flags on the command line win over the file:

    run_dir: runs/base
    nodes: 4
    gpus_per_node: 8
    partition: gpu
    time: 1-00:00:00
    batch_sequences: 8192
    train:
      data: data-bin/books
      task: roberta_masked_lm
      arch: fast_roberta_base
      batch_size: 32           # the most that fits on a GPU; --update-freq follows from batch_sequences
      bf16: true
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .options_file import is_null, named_options, read_yaml, to_arguments
from .sbatch_options import parse_gpus, parse_sbatch


def _option(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training job: fairseq-train's arguments, the resources, and what happens when it is stopped."""

    run_dir: Path = field(metadata={"help": "folder of the run: snapshot, logs, checkpoints, state"})
    train: tuple[str, ...] = field(metadata={"help": "fairseq-train's arguments, the data folder first"})
    name: str = _option("", "name of the job (default: that of the run folder)")
    nodes: int = _option(1, "nodes")
    gpus_per_node: int = _option(
        1, "GPUs a node, as 8 or h100:8, each with one process; with --cpu in the recipe, processes a node"
    )
    gpu_type: str | None = _option(None, "type of the GPUs as SLURM names it (gpus_per_node: h100:8 says both)")
    gpu_request: str = _option("gpus-per-node", "how SLURM is asked for GPUs: gpus-per-node, gres or none (no GRES)")
    cpus_per_gpu: int = _option(4, "processor cores for each of these processes")
    mem_gb: int | None = _option(None, "memory of a node in GB (default: the partition's)")
    partition: str | None = _option(None, "SLURM partition, or several: A,B (default: the cluster's)")
    time: str = _option("1-00:00:00", "time limit: minutes, HH:MM:SS or D-HH:MM:SS")
    account: str | None = _option(None, "account to charge")
    qos: str | None = _option(None, "quality of service")
    constraint: str | None = _option(None, "features that the nodes must have")
    exclude: str | None = _option(None, "nodes to stay away from")
    container: str | None = _option(None, "container image to run in")
    container_runtime: str = _option("pyxis", "what starts the container: pyxis (srun's options) or apptainer")
    container_mounts: str | None = _option(None, "HOST:CONTAINER,... folders that the container sees")
    env: tuple[str, ...] = _option((), "NAME=VALUE for every process")
    setup: tuple[str, ...] = _option((), "shell line of the batch script before the job starts")
    sbatch: tuple[str, ...] = _option((), "any other option of sbatch: NAME=VALUE, or NAME for one without a value")
    port: int | None = _option(
        None,
        "first port to try on rank 0's node, the next one serves the pre-flight (default: from the run folder)",
    )
    batch_sequences: int | None = _option(None, "sequences an update sees on all GPUs together")
    batch_tokens: int | None = _option(None, "tokens an update sees on all GPUs together")
    checkpoint_minutes: float = _option(0.0, "also save a checkpoint every so many minutes (0: only by updates)")
    signal_delay: int = _option(120, "seconds before the time limit at which the job is told to save and stop")
    preflight_seconds: float = _option(600.0, "how long the ranks wait for each other before one is taken for lost")
    accept_changes: bool = _option(False, "go on in the run folder although settings of the training have changed")
    max_requeues: int = _option(100, "how often the job may start again after preemption, time limit or a failure")

    @property
    def num_gpus(self) -> int:
        """Processes of the job, one a GPU."""
        return self.nodes * self.gpus_per_node

    @property
    def is_cpu(self) -> bool:
        """Whether fairseq-train runs without GPUs."""
        return "--cpu" in self.train

    @property
    def sbatch_options(self) -> dict[str, Any]:
        """Further options of sbatch by name; True for those without a value."""
        return parse_sbatch(self.sbatch)

    @property
    def job_name(self) -> str:
        """The name that squeue shows."""
        return self.name or self.run_dir.name

    @property
    def save_dir(self) -> Path:
        """Where fairseq-train writes its checkpoints."""
        return self.run_dir / "checkpoints"


def load_recipe(config: Path | None, *, flags: Mapping[str, Any], train: Sequence[str] = ()) -> Recipe:
    """Read a config file, let `flags` win over it, and append the arguments `train` to its fairseq-train options.

    Raises:
        FileNotFoundError: if the config file is missing.
        ValueError: if the file is no such YAML, or an unknown key, a bad value or no run folder is given.
    """
    values: dict[str, Any] = read_yaml(config) if config is not None else {}
    options = values.pop("train", {})
    values = {name: value for name, value in values.items() if not is_null(value)}
    known = {item.name: item for item in dataclasses.fields(Recipe)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(
            f"{config} has the unknown key {unknown[0]!r}: use {', '.join(sorted(known))}; options of fairseq-train go "
            f"below train."
        )
    values.update({name: value for name, value in flags.items() if value is not None})
    if not values.get("run_dir"):
        raise ValueError("No run folder is given: write --run-dir FOLDER, or run_dir: in the config file.")
    if "gpus_per_node" in values:
        count, gpu_type = parse_gpus(values["gpus_per_node"])
        values["gpus_per_node"] = count
        values.setdefault("gpu_type", gpu_type)
    where = "the command line" if config is None else str(config)
    values = {name: _convert(known[name], value, where) for name, value in values.items() if value is not None}
    return Recipe(**{**values, "train": (*_train_arguments(options, where), *train)})


def minutes_of(time: str) -> int:
    """SLURM's time limit in whole minutes, rounded up.

    Raises:
        ValueError: if `time` has none of the forms minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time.strip())
    if match is None:
        raise ValueError(f"--time {time!r} is no time limit: write minutes, HH:MM:SS or D-HH:MM:SS.")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None:
        hours, minutes, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    else:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    total = -(-(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) // 60)
    if total < 1:
        raise ValueError(f"--time {time!r} leaves no time: give at least one minute.")
    return total


def _train_arguments(options: Any, where: str) -> list[str]:
    """fairseq-train's arguments from a mapping, or from a list of words."""
    if isinstance(options, list) and all(isinstance(word, str) for word in options):
        return options
    if is_null(options):
        return []
    return to_arguments(named_options(options, where=f"{where}: train"), where=f"{where}: train")


def _convert(item: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """A value of the config file or the command line as the type of its field."""
    option = f"--{item.name.replace('_', '-')}"
    kind = typing.get_type_hints(Recipe)[item.name]
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is tuple:
        if isinstance(value, Mapping):
            return tuple(f"{name}={setting}" for name, setting in value.items())
        return tuple(str(word) for word in ([value] if isinstance(value, str) else value))
    if kind is bool and value in (True, "true", False, "false"):
        return value in (True, "true")
    if isinstance(value, list | Mapping) or kind is bool:
        raise ValueError(f"{where}: {item.name} ({option}) must be one value, got {value!r}.")
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {option} is {value!r}, which is no {kind.__name__}.") from error
