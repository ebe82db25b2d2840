"""Config file + flags -> LaunchSettings -> fairseq-train's arguments, completed for the number of GPUs.

A *recipe* is such a file; slurm/README.md has the format. It may name another one by `base: FILE` and then holds only
the differences. `recipe: NAME` under `train` starts from the options of a recipe of `roberta recipes`, or of a file.
Below, the checks before a job is submitted: each refusal names the option and the remedy.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from roberta_plugin.data.mixture import whole_paths
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch import slurm_commands
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
    check_resources,
    check_text,
    keep_secrets,
    read_resources,
    with_entries,
)
from roberta_plugin.launch.run_folder import ITSELF, RunRecord, own_jobs, read_record
from roberta_plugin.record import differences, moved, option_name, refuse
from roberta_plugin.settings import BAGS, REQUIRED, setting

BATCHES = ("batch_sequences", "batch_tokens")


@dataclass(frozen=True, kw_only=True)
class LaunchSettings(Resources):
    """A training job: fairseq-train's arguments, the resources, and what happens when it is stopped."""

    output_dir: Path = setting(REQUIRED, "folder of the run: snapshot, logs, checkpoints, state")
    train: tuple[str, ...] = setting(REQUIRED, "fairseq-train's arguments, the data folder first")
    name: str = setting("", "name of the job (default: that of the run folder)")
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
    """What options of `train` follow from, itself no option; a difference is reported in it instead of in them."""

    @property
    def num_gpus(self) -> int:
        """Processes of the job, one per GPU."""
        return self.nodes * self.gpus_per_node

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

    def resolved(self, **changes: Any) -> Self:
        """The settings with the whole path of the run folder and no secrets, which this process's environment keeps."""
        output_dir = self.output_dir.expanduser().absolute()
        return dataclasses.replace(self, output_dir=output_dir, env=keep_secrets(self.env), **changes)

    def record(self, arguments: tuple[str, ...], *, changes: tuple[str, ...], snapshot: str) -> RunRecord:
        """What the run folder notes of these settings."""
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
    """Read a config file; `flags` win over it, and the arguments `train` are added to its fairseq-train options.

    A data folder at the beginning of `train` replaces that of the file.

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
    """The keys of a recipe and of its base; the recipe's win, name by name under `train`, `env` and `sbatch`.

    Where neither gives a batch, that of a recipe of the package holds on any number of GPUs.
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
    """The file's options as arguments, followed by `train`; a data folder in front of `train` replaces the file's."""
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
    """The batch of one GPU, at most that of the recipe, and the update frequency; the last value of an option wins.

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
    return (*options, "--grow-max-tokens", _scaled(grown, plan.per_gpu * length, whole))


def _scaled(growth: str, numerator: int, denominator: int = 1) -> str:
    """The values of a growth times a fraction.

    Example:
        _scaled("0:1024 2500:2048", 1, 2)  ->  "0:512 2500:1024"
    """
    return re.sub(r":(\d+)", lambda size: f":{int(size[1]) * numerator // denominator}", growth)


# By the beginnings of their names in fairseq's namespace.
FREE = (
    # how an update's batch is shared out and computed; the batch is compared instead
    *("batch_size", "required_batch_size", "max_tokens", "update_freq", "update_seq", "num_workers", "cpu"),
    *("data_buffer_size", "distributed", "device_id", "ddp", "bucket_cap", "fix_batches", "find_unused", "broadcast"),
    *("nprocs", "tpu", "fp16_", "min_loss_scale", "threshold_loss_scale", "on_cpu_convert", "empty_cache"),
    *("attention_backend", "compile", "gradient", "memory_efficient", "all_gather", "heartbeat", "localsgd", "slowmo"),
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
    """All accepted changes since the run began, those of this launch last.

    A run folder keeps the settings that it began with, except those that concern the machines, such as the number of
    GPUs or the last update. `accepted_by` is the option of the command that accepts all others; empty: it has none.

    Raises:
        ValueError: for a change that was not, with the old and the new value.
    """
    before = read_record(recipe.output_dir)
    if before is None:
        return ()
    from roberta_plugin.fairseq_workarounds.command_line import without_removed

    old, new = ({name: getattr(run, name) for name in ("batch_sequences", "batch_tokens")} for run in (before, recipe))
    is_batch_set = any(new.values())
    if before.arguments:
        old |= _options(tuple(without_removed(before.arguments)), folder=before.folder)
        new |= _options(arguments)
        save_dir = Path(new["save_dir"])  # with which the data may have moved
        old["data"] = moved(old["data"], before=old["save_dir"], now=save_dir, among=[new["data"]])
        for options, gpus in ((old, before.num_gpus), (new, recipe.num_gpus)):
            if growth := options.get("grow_max_tokens"):  # on all GPUs
                options["grow_max_tokens"] = _scaled(growth, gpus * int(options["update_freq"][0]))
        for name in () if is_batch_set else ("batch_size", "max_tokens"):
            was, now = (int(options[name] or 0) * int(options["update_freq"][0]) for options in (old, new))
            if was != now:  # the number of GPUs alone may change the batch
                batch = f"{option_name(name)} x --update-freq x GPUs"
                old[batch], new[batch] = was * before.num_gpus, now * recipe.num_gpus
    changes = differences(old, new, free=lambda name: name.startswith(FREE) and name not in COMPARED)
    if changes and before.asked and recipe.asked:
        changes = differences(before.asked, recipe.asked, free=lambda name: not name.startswith("--")) or changes
    if not recipe.accept_changes:
        refuse(
            f"The run folder {recipe.output_dir} was begun with other settings",
            changes,
            "Keep them (the number of GPUs may change), or choose another --output-dir"
            + (f", or accept the change by {accepted_by}." if accepted_by else "."),
        )
    return (*before.changes, *map(str, changes))


def _options(arguments: tuple[str, ...], *, folder: str = "") -> dict[str, Any]:
    """All options of fairseq-train, by their names in its namespace; its data by whole paths, seen from the folder."""
    options = vars(train_arguments.parse(arguments))
    return {**options, "data": whole_paths(options["data"] or "", seen_from=folder)}
