"""Config file + flags -> LaunchSettings: what `fairseq-train` trains, on which machines. A *recipe* is such a file.

slurm/README.md has the format. A recipe may name another one by `base: FILE` and then holds only what differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roberta_plugin.training.options_file import is_null, locate, named_options, read_yaml, to_arguments
from roberta_plugin.training.resources import BAGS, Resources, read_resources, with_entries
from roberta_plugin.training.settings import setting


@dataclass(frozen=True, kw_only=True)
class LaunchSettings(Resources):
    """A training job: fairseq-train's arguments, the resources, and what happens when it is stopped."""

    output_dir: Path = field(metadata={"help": "folder of the run: snapshot, logs, checkpoints, state"})
    train: tuple[str, ...] = field(metadata={"help": "fairseq-train's arguments, the data folder first"})
    name: str = setting("", "name of the job (default: that of the run folder)")
    gpus_per_node: int = setting(
        1, "GPUs per node, as 8 or h100:8, each with one process; with --cpu in the recipe, processes per node"
    )
    min_nodes: int | None = setting(None, "go on with so many nodes where there are no more (nodes: 96-128 says both)")
    time: str = setting("1-00:00:00", "time limit of one start: minutes, HH:MM:SS or D-HH:MM:SS")
    container: str | None = setting(None, "container image to run in")
    container_runtime: str = setting("pyxis", "what starts the container: pyxis (srun's options) or apptainer")
    container_mounts: str | None = setting(None, "HOST:CONTAINER,... folders that the container sees")
    node_local: str | None = setting(
        None, "folder on each node's own disk, as /tmp or $TMPDIR: ranks import from a copy of the code there"
    )
    packed_env: Path | None = setting(
        None, "archive of a Python environment (conda-pack, venv-pack), unpacked in --node-local; ranks use its Python"
    )
    port: int | None = setting(
        None,
        "first port to try on rank 0's node; the next one serves the pre-flight (default: from the run folder)",
    )
    batch_sequences: int | None = setting(None, "sequences per update on all GPUs")
    batch_tokens: int | None = setting(None, "tokens per update on all GPUs")
    checkpoint_minutes: float = setting(0.0, "also save a checkpoint every so many minutes (0: only by updates)")
    preflight_seconds: float = setting(600.0, "how long the ranks wait for each other before one counts as lost")
    accept_changes: bool = setting(False, "continue the run although settings of the training have changed")
    max_requeues: int = setting(100, "how often the job may start again after preemption, time limit or a failure")

    @property
    def num_gpus(self) -> int:
        """Processes of the job, one per GPU; the most, if the number of nodes is a range."""
        return self.nodes * self.gpus_per_node

    @property
    def fewest_nodes(self) -> int:
        """The number of nodes without which the job does not start."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def is_cpu(self) -> bool:
        """Whether fairseq-train runs without GPUs."""
        return "--cpu" in self.train

    @property
    def job_name(self) -> str:
        """The name that squeue shows."""
        return self.name or self.output_dir.name

    @property
    def save_dir(self) -> Path:
        """Where fairseq-train writes its checkpoints."""
        return self.output_dir / "checkpoints"


def load_recipe(config: Path | None, *, flags: Mapping[str, Any], train: Sequence[str] = ()) -> LaunchSettings:
    """Read a config file; `flags` win over it, and the arguments `train` are added to its fairseq-train options.

    A data folder at the beginning of `train` replaces that of the file.

    Raises:
        FileNotFoundError: if the config file or its base is missing.
        ValueError: for an unknown key, a bad value, or without a run folder; names file and line.

    Example:
        load_recipe(Path("slurm/pretrain_base.yaml"), flags={"nodes": "4"}, train=["data-bin/books"])
    """
    values: dict[str, Any] = _read(config) if config is not None else {}
    where = "the command line" if config is None else str(config)
    try:
        arguments = _with_arguments(_train_options(values.pop("train", {}), where), train, where)
        given = {name: value for name, value in flags.items() if value is not None}
        values.update({name: with_entries(values.get(name), given.pop(name)) for name in BAGS if name in given} | given)
        if not values.get("output_dir"):
            file = config or "a config file"
            raise ValueError(f"No run folder is given: write --output-dir FOLDER, or output_dir: in {file}.")
        values.update(_node_range(values.get("nodes")))
        hint = "; options of fairseq-train belong under train"
        return read_resources({**values, "train": arguments}, where=where, kind=LaunchSettings, hint=hint)
    except ValueError as error:
        if config is None:
            raise
        raise ValueError(str(error).replace(where, locate_in_recipe(config, str(error)), 1)) from error


def recipe_files(config: Path) -> list[Path]:
    """The file and, if it names one, its base."""
    base = read_yaml(config).get("base")
    return [config] if base is None or is_null(base) else [config, config.parent / str(base)]


def locate_in_recipe(config: Path, message: str) -> str:
    """File and line of the first option of `message` that the recipe or its base sets; else the recipe's file."""
    for path in recipe_files(config):
        found = locate(path, message)
        if found != str(path):
            return found
    return str(config)


def _node_range(text: Any) -> dict[str, str]:
    """Both numbers of `nodes: 96-128`; nothing for a plain number."""
    match = re.fullmatch(r"\s*(\d+)-(\d+)\s*", str(text))
    return {} if match is None else {"min_nodes": match[1], "nodes": match[2]}


def _read(config: Path) -> dict[str, Any]:
    """The keys of a recipe and of its base; the recipe's win, option by option under `train`."""
    values, *of_base = (read_yaml(path) for path in recipe_files(config))
    values.pop("base", None)
    if not of_base:
        return values
    if "base" in of_base[0]:
        raise ValueError(f"{config}: its base has a base too. Name the file with all settings, which has none.")
    options = [_train_options(content.pop("train", {}), str(config)) for content in (of_base[0], values)]
    if not all(isinstance(item, dict) for item in options):
        raise ValueError(f"{config}: with a base, train must be options and their values in both files.")
    return {**of_base[0], **values, "train": {**options[0], **options[1]}}


def _train_options(content: Any, where: str) -> Any:
    """fairseq-train's options by name; a list of arguments stays one."""
    if isinstance(content, list) and all(isinstance(argument, str) for argument in content):
        return content
    return {} if is_null(content) else named_options(content, where=f"{where}: train")


def _with_arguments(options: Any, train: Sequence[str], where: str) -> tuple[str, ...]:
    """The file's options as arguments, followed by `train`; a data folder in front of `train` replaces the file's."""
    data = [] if not train or train[0].startswith("-") else [train[0]]
    if isinstance(options, list):
        replaced = bool(data and options) and not options[0].startswith("-")
        return (*data, *options[replaced:], *train[len(data) :])
    if data:
        options = {name: value for name, value in options.items() if name != "data"}
    return (*data, *to_arguments(options, where=f"{where}: train"), *train[len(data) :])
