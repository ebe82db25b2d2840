"""Config file + flags -> LaunchSettings -> fairseq-train's arguments, completed for the number of GPUs.

A *recipe* is such a file; slurm/README.md has the format. It may name another one by `base: FILE` and then holds only
the differences. `recipe: NAME` under `train` starts from the options of a recipe of `roberta recipes`, or of a file.
`recipe_checks.py` has the checks before a job is submitted.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import OUR_TASK, PACKAGE, value_of
from roberta_plugin.launch.batch_size import plan_batch, sequences_in_tokens
from roberta_plugin.launch.options_file import (
    RECIPES,
    options_in,
    recipe_files,
    to_arguments,
    train_of,
    with_recipe,
)
from roberta_plugin.launch.resources import (
    Resources,
    keep_secrets,
    read_resources,
    with_entries,
)
from roberta_plugin.runs import RunRecord
from roberta_plugin.settings import BAGS, REQUIRED, setting

BATCHES = ("batch_sequences", "batch_tokens")


@dataclass(frozen=True, kw_only=True)
class LaunchSettings(Resources):
    """A training job: fairseq-train's arguments, the resources, and what happens when it is stopped."""

    output_dir: Path = setting(REQUIRED, "folder of the run: snapshot, logs, checkpoints, state")
    train: tuple[str, ...] = setting(REQUIRED, "fairseq-train's arguments, the data folder first")
    name: str = setting("", "name of the job (default: the name of the run folder)")
    gpus_per_node: int = setting(
        1,
        "GPUs per node, as 8 or h100:8, each with one process; with --cpu in the recipe, processes per node",
        smallest=1,
        road="slurm",
    )
    time: str = setting("1-00:00:00", "time limit of one start: minutes, HH:MM:SS or D-HH:MM:SS", road="slurm")
    container: str | None = setting(None, "container image to run in", road="slurm")
    container_runtime: str = setting(
        "pyxis",
        "what runs the container; pyxis: by srun's options",
        choices=("pyxis", "apptainer"),
        goes_with={"container": ()},
        road="slurm",
    )
    container_mounts: str | None = setting(
        None, "HOST:CONTAINER,... folders that the container sees", goes_with={"container": ()}, road="slurm"
    )
    port: int | None = setting(
        None,
        "first port to try on rank 0's node; the next one serves the pre-flight",
        default_text="from the run folder",
        smallest=1024,
        largest=65534,
        road="slurm",
    )
    batch_sequences: int | None = setting(
        None, "sequences per update on all GPUs", smallest=1, excludes=("batch_tokens",)
    )
    batch_tokens: int | None = setting(None, "tokens per update on all GPUs", smallest=1)
    checkpoint_minutes: float = setting(
        0.0, "minutes between additional checkpoints (0: save by updates only)", smallest=0
    )
    preflight_seconds: float = setting(
        600.0, "how long the ranks wait for each other before one counts as lost", above=0, road="slurm"
    )
    accept_changes: bool = setting(False, "continue the run although settings of the training have changed")
    max_requeues: int = setting(
        100, "how often the job may start again after preemption, time limit or a failure", smallest=0, road="slurm"
    )
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings from which options of `train` follow. Differences are reported in terms of these settings."""

    @property
    def num_gpus(self) -> int:
        """Processes of the job, one per GPU."""
        return self.nodes * self.gpus_per_node

    @property
    def is_cpu(self) -> bool:
        """True if fairseq-train runs without GPUs."""
        return "--cpu" in self.train

    @property
    def job_name(self) -> str:
        """The name that squeue shows."""
        return self.name or self.output_dir.name

    @property
    def save_dir(self) -> Path:
        """Where fairseq-train writes its checkpoints."""
        return self.output_dir / "checkpoints"

    def resolved(self, **changes: Any) -> Self:
        """The settings with the whole path of the run folder and no secrets, which this process's environment keeps."""
        output_dir = self.output_dir.expanduser().absolute()
        return dataclasses.replace(self, output_dir=output_dir, env=keep_secrets(self.env), **changes)

    def record(self, arguments: tuple[str, ...], *, changes: tuple[str, ...], snapshot: str) -> RunRecord:
        """The record of these settings for the run folder."""
        return RunRecord(
            arguments=arguments,
            num_gpus=self.num_gpus,
            batch_sequences=self.batch_sequences,
            batch_tokens=self.batch_tokens,
            changes=changes,
            snapshot=snapshot,
            folder=os.getcwd(),
            asked=self.asked,
        )


def load_recipe(config: Path | None, *, flags: Mapping[str, Any], train: Sequence[str] = ()) -> LaunchSettings:
    """Read a config file. `flags` override it, and the arguments `train` are added to its fairseq-train options.

    A data folder at the beginning of `train` replaces the data folder of the file.

    Raises:
        ValueError: for an unknown key, a bad value, or without a run folder; names file and line.

    Example:
        load_recipe(Path("slurm/pretrain_base.yaml"), flags={"nodes": "4"}, train=["data-bin/books"])
    """
    is_batch_given = any(flags.get(name) is not None for name in BATCHES)
    values: dict[str, Any] = _read(config, is_batch_given=is_batch_given) if config is not None else {}
    where = "the command line" if config is None else str(config)
    with located(config, flags=flags, train=train):
        arguments = _with_arguments(values.pop("train", {}), train, where)
        chosen = {name: value for name, value in flags.items() if value is not None}
        values.update(
            chosen | {name: with_entries(values.get(name), chosen[name], name=name) for name in BAGS if name in chosen}
        )
        if not values.get("output_dir"):
            file = config or "a config file"
            raise ValueError(f"No run folder is given: write --output-dir FOLDER, or output_dir: in {file}.")
        hint = "; options of fairseq-train belong under train"
        return read_resources({**values, "train": arguments}, where=where, kind=LaunchSettings, hint=hint)


@contextmanager
def located(config: Path | None, *, flags: Mapping[str, Any], train: Sequence[str]) -> Iterator[None]:
    """Let an error begin with where its options come from: the command line, or the line of the recipe or of its base.

    `flags` and `train` are what the command line gives; without a `config`, errors stay as they are.
    """
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError) as error:
        if config is None:
            raise
        message = str(error).removeprefix(f"{config}: ").removeprefix(f"{config} ")
        place = str(config)
        if isinstance(error, ValueError):
            options = {name.replace("_", "-") for name, value in flags.items() if value is not None}
            options |= {text[2:].partition("=")[0].replace("_", "-") for text in train if text.startswith("--")}
            file, *beneath = recipe_files(config)
            for name in options_in(message):
                place = "the command line" if name in options else file.place(f"(--{name})", beneath=beneath)
                if place != str(config):
                    break
        kind = ValueError if isinstance(error, ValueError) else type(error)
        raise kind(f"{place}: {message}") from error


def batch_of(train: Mapping[str, Any], *, gpus: int) -> dict[str, Any]:
    """The batch of an update on so many GPUs, as the setting of a launch, which keeps it on any number of them.

    Example:
        batch_of({"batch-size": "32", "update-freq": "32"}, gpus=8)  ->  {"batch_sequences": 8192}
    """
    for name, batch in (("batch-size", "batch_sequences"), ("max-tokens", "batch_tokens")):
        if train.get(name):
            return {batch: int(train[name]) * int(train.get("update-freq", 1)) * gpus}
    return {}


def _read(config: Path, *, is_batch_given: bool = False) -> dict[str, Any]:
    """The keys of a recipe and its base. The recipe's keys override, name by name under `train`, `env` and `sbatch`.

    If neither gives a batch, the batch of a recipe of the package is kept on any number of GPUs.
    """
    files = recipe_files(config)
    file, base = files[0].content, files[1].content if files[0].subsection("base") else {}
    if "base" in base:
        raise ValueError(f"{config}: its base has a base too. Name the file with all settings, which has none.")
    train: Any = with_recipe({}, files)
    if any(isinstance(content.get("train"), list) for content in (file, base)):
        if len(files) > 1:
            raise ValueError(f"{config}: with a base, train must be options and their values in both files.")
        train = file["train"]
    both = [name for name in BAGS if name in base and name in file]
    bags = {}
    for name in both:
        with files[1].located():
            bags[name] = with_entries(base[name], (), name=name)
        with files[0].located():
            bags[name] = with_entries(bags[name], file[name], name=name)
    merged, package_recipe = {**base, **file, **bags, "train": train}, files[-1]
    merged.pop("base", None)
    if package_recipe.path.parent == RECIPES and not any("update-freq" in train_of(each) for each in files[:-1]):
        train.pop("update-freq", None)
        if not is_batch_given and not any(merged.get(name) for name in BATCHES):
            merged |= batch_of(train_of(package_recipe), gpus=int(package_recipe.content.get("gpus", 1)))
    return merged


def _with_arguments(options: Any, train: Sequence[str], where: str) -> tuple[str, ...]:
    """The file's options as arguments, followed by `train`; a data folder in front of `train` replaces the file's.

    Examples with `train` ["new", "--lr", "2"]:
        options ["old", "--lr", "1"]        ->  new --lr 1 --lr 2
        options {"data": "old", "lr": "1"}  ->  new --lr 1 --lr 2
    """
    data = [] if not train or train[0].startswith("-") else [train[0]]
    if isinstance(options, list):
        replaced = bool(data and options) and not options[0].startswith("-")
        return (*data, *options[replaced:], *train[len(data) :])
    if data:
        options = {name: value for name, value in options.items() if name != "data"}
    return (*data, *to_arguments(options, where=f"{where}: train"), *train[len(data) :])


def complete(recipe: LaunchSettings) -> tuple[str, ...]:
    """The recipe's fairseq-train arguments with the save folder and the batch for its number of GPUs.

    Raises:
        ValueError: if the recipe sets an option that follows from it, or its batch cannot be shared out.
    """
    arguments = _with_user_dir(_words(recipe))
    for option, remedy in {
        "--save-dir": "checkpoints go to RUN-DIR/checkpoints",
        "--distributed-world-size": "it is nodes x gpus_per_node",
        "--distributed-rank": "it follows from SLURM",
        "--distributed-init-method": "it follows from SLURM and --port",
        "--distributed-port": "--port of `roberta launch` sets it",
        "--device-id": "it follows from SLURM",
        "--no-last-checkpoints": "a restart resumes from the last one",
        "--no-save": "a restart resumes from a checkpoint",
    }.items():
        if option in arguments:
            raise ValueError(f"The recipe gives fairseq-train {option}: leave it out, for {remedy}.")
    arguments += ["--save-dir", str(recipe.save_dir)]
    if recipe.batch_sequences is None and recipe.batch_tokens is None:
        return tuple(arguments)
    if "--update-freq" in arguments:
        raise ValueError(
            "--update-freq follows from the effective batch and the number of GPUs: leave one of them out."
        )
    return (*arguments, *batch_arguments(recipe))


def _with_user_dir(arguments: list[str]) -> list[str]:
    """The arguments with the last --user-dir alone, and without one that is this plugin: the job's snapshot has it."""
    train_arguments.check_user_dir(arguments)
    user_dir: list[str] = []
    while "--user-dir" in arguments[:-1]:
        at = arguments.index("--user-dir")
        user_dir = arguments[at : at + 2]
        arguments = arguments[:at] + arguments[at + 2 :]
    return [*arguments, *user_dir] if user_dir and Path(user_dir[1]).name != PACKAGE.name else arguments


def _words(recipe: LaunchSettings) -> list[str]:
    """The recipe's arguments, `--name=value` in two words."""
    return [part for text in recipe.train for part in (text.split("=", 1) if text.startswith("--") else [text])]


def batch_arguments(recipe: LaunchSettings) -> tuple[str, ...]:
    """The batch of one GPU, at most as large as the recipe's, and the update frequency; an option's last value counts.

    Where the number of GPUs does not divide the batch, --update-sequences keeps it (`data/block_batches.py`).

    Raises:
        ValueError: if the batch cannot be shared out among the recipe's number of GPUs.
    """
    arguments = _words(recipe)
    if recipe.batch_sequences is not None:
        most = int(value_of(arguments, "--batch-size", needed_for="--batch-sequences"))
        may_differ = ("--task", OUR_TASK) in itertools.pairwise(arguments)
        if recipe.batch_sequences % recipe.num_gpus and {"--max-tokens", "--tokens-per-sample"} <= set(arguments):
            tokens, length = (
                int(value_of(arguments, name, needed_for="")) for name in ("--max-tokens", "--tokens-per-sample")
            )
            most = min(most, max(1, tokens // length))  # these batches are not cut by their tokens
        plan = plan_batch(recipe.batch_sequences, num_gpus=recipe.num_gpus, most_per_gpu=most, may_differ=may_differ)
        options = ("--batch-size", str(plan.per_gpu), "--update-freq", str(plan.update_freq))
        is_even = plan.per_gpu * plan.update_freq * recipe.num_gpus == recipe.batch_sequences
        return options if is_even else (*options, "--update-sequences", str(recipe.batch_sequences))
    length = int(value_of(arguments, "--tokens-per-sample", needed_for="--batch-tokens"))
    most = int(value_of(arguments, "--max-tokens", needed_for="--batch-tokens")) // length
    if most < 1:
        raise ValueError(
            f"--max-tokens is smaller than --tokens-per-sample ({length}): a batch of one GPU would be empty."
        )
    sequences = sequences_in_tokens(recipe.batch_tokens or 0, tokens_per_sample=length)
    plan = plan_batch(sequences, num_gpus=recipe.num_gpus, most_per_gpu=most)
    options = ("--max-tokens", str(plan.per_gpu * length), "--update-freq", str(plan.update_freq))
    if "--grow-max-tokens" not in arguments:
        return options
    grown = value_of(arguments, "--grow-max-tokens", needed_for="")
    whole = int(value_of(arguments, "--max-tokens", needed_for=""))
    return (*options, "--grow-max-tokens", scale_growth(grown, plan.per_gpu * length, whole))


def scale_growth(growth: str, numerator: int, denominator: int = 1) -> str:
    """The values of a growth times a fraction.

    Example:
        scale_growth("0:1024 2500:2048", 1, 2)  ->  "0:512 2500:1024"
    """
    return re.sub(r":(\d+)", lambda size: f":{int(size[1]) * numerator // denominator}", growth)
