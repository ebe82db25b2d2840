"""The settings of `roberta finetune` -> its plan: model, data and grid, resolved and checked once.

    --model                                       -> Start: checkpoint, options of its architecture
    --data, or official files and --tokenizer     -> Prepared
    the paper's recipe, --only, --set, --seeds    -> Grid: every combination of the axes, with every seed

Everything that does not fit is refused here, before anything is trained.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.experiments.sweeps.grid import Grid, checked_seeds, is_list, run_folders
from roberta_plugin.finetuning.benchmarks import SMALLER_IS_BETTER, benchmark_of
from roberta_plugin.finetuning.benchmarks.base import MAX_LENGTH, Benchmark, PaperRecipe
from roberta_plugin.finetuning.identity import check_words
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.layouts.windows import question_length
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.preparation import (
    DataSettings,
    PrepareSettings,
    check_measurable,
    check_same,
    prepare,
    remarks,
    selection_remarks,
)
from roberta_plugin.finetuning.prepared import NAME, Prepared
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.options_file import named_options
from roberta_plugin.launch.resources import Resources
from roberta_plugin.launch.run_folder import Metric, RunFolder
from roberta_plugin.record import differences, refuse
from roberta_plugin.settings import flag

GRID = "finetune.yaml"
START = "start.json"  # in the folder of a fine-tuning: from which weights and examples its runs have started
Report = Callable[[str], None]
Labels: TypeAlias = Mapping[str, Mapping[str, Any]]  # of an axis: label -> options

# Options of every run. It keeps the best checkpoint, and the last one to resume from.
_COMMON = {
    "no-epoch-checkpoints": "true",
    "keep-interval-updates": "1",
    "find-unused-parameters": "true",  # on several GPUs: the masked-LM head has no gradient
    "num-workers": "0",
    "log-interval": "50",
    "tensorboard-logdir": "{folder}/tensorboard",
}

_MOST_SHOWN = 10  # labels in a message
_REMEDY = "delete it if --model and the data are the same"
_BATCH = ("batch-size", "update-freq")
_FOR_TRAINING = {item.name: flag(item) for item in fields(FinetuneSettings) if "is_for_training" in item.metadata}
_NAMES = {  # options of fairseq-train -> of this command; empty: it follows from another one
    "data": "--data",
    "--finetune-from-model": "--model",
    "--best-checkpoint-metric": "--select",
    "--maximize-best-checkpoint-metric": "",
    "--max-update": "--epochs, of max-update",
    "--total-num-update": "",
    "--warmup-updates": "",
    **{option: option for option in _FOR_TRAINING.values()},
}
_REFUSED = {
    "max-tokens": "the paper counts a batch in examples; give batch-size, how many of them a GPU takes at once",
    "max-sentences": "this is fairseq's other name for batch-size; give that",
    "distributed-world-size": "give --gpus-per-run, or with --slurm gpus_per_node",
    "data": "give --data, which is also what the runs are evaluated on",
    "task": "it follows from the TASK of this command",
    "criterion": "it follows from the TASK of this command",
    "finetune-from-model": "give --model",
    "maximize-best-checkpoint-metric": "it follows from the metric of --select",
}


@dataclass(frozen=True, kw_only=True)
class FinetunePlan:
    """A fine-tuning: its settings, the data and the grid, which fit the model and each other."""

    settings: FinetuneSettings
    prepared: Prepared  # the data
    grid: Grid  # all runs, with options that fairseq-train accepts
    gpus_per_run: int  # GPUs that each run on this machine has for itself; 0: all runs share what there is

    @property
    def root(self) -> Path:
        """Folder of the runs and of the sweep's report."""
        return self.settings.output_dir / "runs"

    @property
    def results(self) -> Path:
        """Folder of the evaluations, the prediction files and the table."""
        return self.settings.output_dir / "results"

    @property
    def runs(self) -> list[RunFolder]:
        """The folders of all runs."""
        return run_folders(self.grid, self.root.resolve())


def plan_finetuning(settings: FinetuneSettings, *, report: Report = lambda line: None) -> FinetunePlan:
    """Prepare the data if needed, check that everything fits, and write the grid file.

    Raises:
        ValueError: if settings, model and data do not fit each other; or if the prepared folder or a run exists and was
            made with other settings: the message names each difference.
    """
    import torch

    import roberta_plugin
    from roberta_plugin.experiments.sweeps.sweep import check_options
    from roberta_plugin.hub.running import usable_device

    roberta_plugin.register()
    if settings.device is not None and settings.slurm is None:
        usable_device(settings.device)  # it is needed after the trainings only
    has_gpus = torch.cuda.is_available()
    gpus_per_run = int(has_gpus) if settings.gpus_per_run is None else settings.gpus_per_run
    num_gpus = max(has_gpus, gpus_per_run) if settings.slurm is None else settings.slurm.gpus_per_node
    start, benchmark = starting_model(settings.model), benchmark_of(settings.task)
    prepared = prepared_data(settings, start, benchmark)
    kind = benchmark.kind_for(prepared.settings)
    grid = _grid(settings, prepared, start, benchmark, kind, num_gpus=num_gpus, report=report)
    check_options(grid, is_written=False)
    plan = FinetunePlan(settings=settings, prepared=prepared, grid=grid, gpus_per_run=gpus_per_run)
    made_from = {
        "sha256": None if settings.from_scratch else start.sha256,
        **{f"sha256_of_{split}": prepared.sha256_of_inputs(split) for split in prepared.splits if "test" not in split},
    }
    path = settings.output_dir / START
    before = (read_json(path, keys=["sha256"], remedy=_REMEDY) or {}) if plan.root.is_dir() else {}
    is_same = made_from["sha256"] is not None and before.get("sha256") == made_from["sha256"]
    for folder in plan.runs:  # before the file that describes them is replaced
        folder.check(
            lambda name: _NAMES.get(name, name.replace("--", "--set ", 1)),
            free=lambda name: is_same and name == "--finetune-from-model",
        )
    check_start(before, made_from, prepared, settings.output_dir)
    for folder in plan.runs if is_same else ():  # with the path of now
        if folder.path.is_dir():
            folder.record()
    settings.output_dir.mkdir(parents=True, exist_ok=True)
    write_json(path, {"model": None if settings.from_scratch else str(start.checkpoint), **made_from})
    grid.write()
    for remark in [*remarks(prepared), *selection_remarks(prepared, kind, grid.metric.value)]:
        report(remark)
    return plan


def prepared_data(settings: FinetuneSettings, start: Start, benchmark: Benchmark) -> Prepared:
    """The prepared folder, made from the official files if it does not exist, with the model's tokenizer and length.

    Raises:
        ValueError: as `prepared_folder`; or if the model is too short for the task.
    """
    folder, data, dictionary = settings.data or settings.output_dir / "data", settings, None
    if settings.raw is not None:
        length = min(MAX_LENGTH, start.max_positions) if settings.max_length is None else settings.max_length
        data = replace(settings, max_length=length)
        if not (folder / NAME).is_file():
            check_positions(start, benchmark, max_length=length, options=settings.task_options)
            tokenizer, dictionary = tokenizer_of(settings, start)
            data = replace(data, tokenizer=tokenizer)
    return prepared_folder(data, folder, dictionary=dictionary)


def prepared_folder(data: DataSettings, folder: Path, *, dictionary: Path | None = None) -> Prepared:
    """A prepared folder, made from the official files if it does not exist.

    `dictionary` is the dict.txt to prepare it with, by default the tokenizer's.

    Raises:
        ValueError: if they cannot be used; or if the folder is for another task, or was prepared with other settings.
    """
    if data.raw is not None and not (folder / NAME).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        sources = {item.name: getattr(data, item.name) for item in fields(DataSettings)}
        return prepare(PrepareSettings(**sources, dictionary=dictionary, output_dir=folder))
    prepared = Prepared.open(folder)
    check_same(prepared, data)
    return prepared


def _grid(
    settings: FinetuneSettings,
    prepared: Prepared,
    start: Start,
    benchmark: Benchmark,
    kind: Kind,
    *,
    num_gpus: int,
    report: Report,
) -> Grid:
    """The grid of the paper's recipe, with what the settings change; `num_gpus` 0: on the CPU."""
    check_model(start, prepared)
    for split, what in (("train", "to train on"), ("valid", "to choose checkpoints by")):
        if split not in prepared.splits:
            raise ValueError(
                f"{prepared.folder} has no split {split!r} {what}; it has {', '.join(prepared.splits)}: add its file "
                f"to the raw files, delete {prepared.folder}, and run the same command again."
            )
    batches = batches_of(settings.only.get("batch", ""))
    recipe = benchmark.recipe(prepared, epochs=settings.epochs, batches=batches)
    if settings.quick:
        recipe = quickened(recipe, all_of=settings.only)
    if recipe.starts_from and not start.is_fine_tuned:
        report(
            f"The paper starts {settings.task} from its {recipe.starts_from} model: to do the same, give --model the "
            f"output folder of `roberta finetune {recipe.starts_from}`."
        )
    length = prepared.settings["max_length"]
    if length > start.max_positions:
        limit = f"{start.checkpoint} was trained with at most {start.max_positions} tokens"
        report(f"{limit}, and {prepared.folder} has up to {length}: its rotary positions go on.")
    kind.check_scoring(settings.task_options, prepared.split("valid"))
    options = train_options(settings)
    if "label-smoothing" in options:
        kind.check_smoothing()
    return paper_grid(
        recipe,
        path=settings.output_dir / GRID,
        data=prepared.folder,
        metric=selected_metric(settings, prepared, kind, options.pop("best-checkpoint-metric", None)),
        model=start.options_at(length),
        checkpoint=None if settings.from_scratch else start.checkpoint,
        changes={
            **({} if num_gpus else {"cpu": "true"}),
            **(start.initial if settings.from_scratch else {}),
            **options,
        },
        only=settings.only,
        seeds=settings.seeds,
        slurm=settings.slurm,
        num_ranks=max(1, num_gpus),
    )


def train_options(settings: FinetuneSettings) -> dict[str, str]:
    """The options of fairseq-train that --set gives, with those that have options of their own.

    Raises:
        ValueError: if both give one, and differ.
    """
    options = named_options(settings.train_options, where="--set")
    for field, option in _FOR_TRAINING.items():
        name, value = option.removeprefix("--"), getattr(settings, field)
        if value is not None and options.setdefault(name, str(value)) != str(value):
            raise ValueError(f"{option} {value} and --set {name}={options[name]} contradict each other.")
    return options


def selected_metric(
    settings: FinetuneSettings, prepared: Prepared, kind: Kind, by_set: str | None
) -> tuple[str, str] | None:
    """The metric that --select names, or --set best-checkpoint-metric, and its goal; None: the recipe's.

    Raises:
        ValueError: if a validation of the task does not log it: names those that it does.
    """
    name, option = (settings.select, "--select") if settings.select else (by_set, "--set best-checkpoint-metric")
    if name is None:
        return None
    if by_set not in (None, name):
        raise ValueError(f"--select {name} and --set best-checkpoint-metric={by_set} contradict each other.")
    names, of_labels = kind.selectable(), kind.label_metrics()
    if name not in (*names, *of_labels):
        shown = [*names, *([f"the F1 of a label ({', '.join(list(of_labels)[:_MOST_SHOWN])})"] if of_labels else [])]
        raise ValueError(f"{option} {name}: {settings.task} is not validated by it, but by {', '.join(shown)}.")
    check_measurable(prepared, "valid", name, option=option)
    return name, "min" if name in SMALLER_IS_BETTER else "max"


@dataclass(frozen=True)
class Start:
    """The model that fine-tuning starts from: its file, the file's content, and the options that build such a model."""

    checkpoint: Path
    state: dict[str, Any]
    options: dict[str, str]
    initial: dict[str, str]  # how its own pretraining drew its weights, as options
    num_symbols: int
    is_fine_tuned: bool

    @property
    def max_positions(self) -> int:
        """Tokens of a sequence at most."""
        return int(self.options["max-positions"])

    @property
    def longest(self) -> float:
        """Tokens that it can be fine-tuned with: with rotary positions, any number."""
        return math.inf if self.options.get("position-encoding") == "rotary" else self.max_positions

    @cached_property
    def sha256(self) -> str:
        """A hash of all parameters with their names: the optimizer's state may have been dropped from the file."""
        import torch

        digest = hashlib.sha256()
        for name, value in sorted(self.state["model"].items()):
            if torch.is_tensor(value):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
                digest.update(value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def options_at(self, max_length: int) -> dict[str, str]:
        """Its options, for sequences of a length that `check_model` allows."""
        return {**self.options, "max-positions": str(max(self.max_positions, max_length))}


def starting_model(path: Path) -> Start:
    """Read a checkpoint, or that of the best run of the fine-tuning in a folder."""
    from roberta_plugin.conversion.model_files import find_checkpoint
    from roberta_plugin.experiments.inference import load_state
    from roberta_plugin.models import checkpoints
    from roberta_plugin.models.adapters import merge

    checkpoint = find_checkpoint(path, None) if path.is_dir() else path
    state = load_state(checkpoint)
    checkpoints.model_arguments(state, checkpoint)  # raises for a model that cannot be built
    try:
        options = checkpoints.model_options(state)
        merge(dict(state["model"]))
    except ValueError as error:
        raise ValueError(f"--model {checkpoint}: {error}") from error
    return Start(
        checkpoint,
        state,
        options,
        initial=checkpoints.initial_options(state),
        num_symbols=checkpoints.num_symbols(state),
        is_fine_tuned=any(name.startswith(checkpoints.ALL_HEADS) for name in state["model"]),
    )


def tokenizer_of(settings: FinetuneSettings, start: Start) -> tuple[Path, Path | None]:
    """The folder of the tokenizer and the dict.txt: those of --tokenizer, else those beside the model.

    Raises:
        FileNotFoundError: if the model has none; says what to give.
    """
    from roberta_plugin.conversion.model_files import find_dictionary, tokenizer_folder

    if settings.tokenizer is not None:
        return settings.tokenizer, None
    try:
        dictionary = find_dictionary(start.checkpoint, start.state, None)
        return tokenizer_folder(start.checkpoint, dictionary), dictionary
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"--tokenizer is missing, and no tokenizer was found with the model: give the folder with the tokenizer's "
            f"files and dict.txt. ({str(error).partition('. ')[0]}.)"
        ) from error


def check_positions(start: Start, benchmark: Benchmark, *, max_length: int, options: TaskOptions) -> None:
    """Refuse, before preparing, a length that exceeds the model's positions or is too short for the task."""
    if max_length > start.longest:
        raise ValueError(
            f"--max-length {max_length}: {start.checkpoint} has {start.max_positions} positions. Give at most that, or "
            "leave it out."
        )
    settings = benchmark.settings
    try:
        settings(max_length=max_length, options=options)
    except ValueError as error:
        if max_length < start.max_positions or max_length >= MAX_LENGTH:
            raise
        settings(max_length=MAX_LENGTH, options=options)  # raises where the length is not the reason
        length = question_length(start.max_positions, MAX_LENGTH)
        raise ValueError(
            f"{error} --max-length cannot be more than {start.max_positions} here, the positions of "
            f"{start.checkpoint}: give --question-length {length}, or pretrain a model "
            "with more positions (RoBERTa has 512)."
        ) from error


def check_model(start: Start, prepared: Prepared) -> None:
    """Refuse data with another vocabulary than the model's, or with longer sequences."""
    if start.num_symbols != len(prepared.vocabulary):
        raise ValueError(
            f"{start.checkpoint} has a vocabulary of {start.num_symbols:,} symbols, and {prepared.folder} one "
            f"of {len(prepared.vocabulary):,}: prepare the data with the tokenizer and the dict.txt of that model."
        )
    check_words(start.state, prepared, checkpoint=start.checkpoint)
    if prepared.settings["max_length"] > start.longest:
        raise ValueError(
            f"{start.checkpoint} has {start.max_positions} positions, and {prepared.folder} sequences of up to "
            f"{prepared.settings['max_length']} tokens: delete that folder (rm -r {prepared.folder}) and give "
            f"--max-length {start.max_positions}, or give the --data of another one."
        )


def check_start(before: Mapping[str, Any], now: Mapping[str, Any], prepared: Prepared, folder: Path) -> None:
    """Refuse a folder with runs that started from other weights or examples; those of a test set may change.

    The runs record the paths of the model and of the data. A pretraining that continues writes other weights to the
    same path, and a folder that is prepared again may have other examples.
    """
    refuse(
        f"{folder} holds runs that started from other weights or examples",
        differences(
            before,
            now,
            free=lambda name: None in (before.get(name), now.get(name)),
            named=lambda name: "--model" if name == "sha256" else f"{name[len('sha256_of_') :]} of {prepared.folder}",
        ),
        f"Give another --output-dir, or delete {folder / 'runs'} and {folder / 'results'} if the runs are not needed "
        "any more.",
    )


def paper_grid(
    recipe: PaperRecipe,
    *,
    path: Path,
    data: Path,
    model: Mapping[str, str],
    checkpoint: Path | None,
    changes: Mapping[str, str],
    only: Mapping[str, str],
    seeds: Sequence[str] | None,
    slurm: Resources | None = None,
    metric: tuple[str, str] | None = None,
    num_ranks: int = 1,
) -> Grid:
    """The grid of a benchmark's recipe, whose file is to be at `path`.

    Args:
        model: options of the architecture.
        checkpoint: what training starts from; None: random weights.
        changes: options of fairseq-train that replace or extend the recipe's.
        only: axis -> the label that is kept of it, or a value that the recipe does not have; or several: `1e-4,3e-4`.
        metric: name of the one that selects, and its goal, "min" or "max"; None: the recipe's.
        num_ranks: GPUs of a run, or 1 for a CPU. They share the recipe's batch, whose size does not change.

    Raises:
        ValueError: if `only` names no axis, `changes` an option that other settings determine or of which an axis tries
            several values, or if the batch cannot be divided among the GPUs.
    """
    for name, remedy in _REFUSED.items():
        if name in changes:
            raise ValueError(f"--set {name}={changes[name]}: {remedy}.")
    for name in changes.keys() & model.keys():
        raise ValueError(f"--set {name}={changes[name]}: the architecture is that of --model ({model[name]}).")
    axes: dict[str, Labels] = {
        name: labels if isinstance(labels, Mapping) else {label: {name: label} for label in labels}
        for name, labels in recipe.axes.items()
    }
    for name, text in only.items():
        if name not in axes:
            raise ValueError(f"--only {name}={text}: the recipe has no such axis; it has {', '.join(axes) or 'none'}.")
        axes[name] = _restricted(name, axes[name], text)
    sharing = {name: changes[name] for name in _BATCH if name in changes}
    options = {name: value for name, value in changes.items() if name not in _BATCH}
    axes = {name: _changed(name, labels, options, sharing, num_ranks=num_ranks) for name, labels in axes.items()}
    chosen: dict[str, Any] = dict(recipe.metric)
    if metric is not None:
        chosen |= {"value": metric[0], "goal": metric[1]}
        options["best-checkpoint-metric"] = metric[0]  # among a run's own options: another choice is another run
        if metric[1] == "max":
            options["maximize-best-checkpoint-metric"] = "true"
    return Grid(
        path=path,
        options={
            "data": str(data.resolve()),
            **_COMMON,
            **recipe.train,
            "distributed-world-size": str(num_ranks),
            **model,
            **({"finetune-from-model": str(checkpoint.resolve())} if checkpoint else {}),
            **options,
        },
        axes=axes,
        seeds=checked_seeds(list(seeds or recipe.seeds), where=f"{path}: seeds"),
        metric=Metric(**chosen),
        slurm=slurm,
    )


def batches_of(text: str) -> list[int]:
    """The sizes of batches that --only batch=... names; none: those of the recipe.

    Example: "16,64" -> [16, 64].
    """
    sizes = text.split(",") if text else []
    for size in sizes:
        if not size.isdecimal() or int(size) < 1:
            raise ValueError(f"--only batch={text}: a batch is a whole number of examples from 1 on, got {size!r}.")
    return [int(size) for size in sizes]


def quickened(recipe: PaperRecipe, *, all_of: Iterable[str] = ()) -> PaperRecipe:
    """The recipe with one run: the first seed, and of each axis but those of `all_of` the value in the middle (of two,
    the second).

    Example: learning rates 1e-5, 2e-5, 3e-5, batches 16, 32 and five seeds -> 2e-5, 32 and seed 1.
    """

    def middle(choices: Any) -> Any:
        label = list(choices)[len(choices) // 2]
        return {label: choices[label]} if isinstance(choices, Mapping) else [label]

    axes = {name: choices if name in all_of else middle(choices) for name, choices in recipe.axes.items()}
    return replace(recipe, axes=axes, seeds=list(recipe.seeds[:1]))


def _restricted(axis: str, labels: Labels, text: str) -> Labels:
    """The labels that --only names; of a list of values, any."""
    chosen = text.split(",")
    if is_list(axis, labels):
        if not all(chosen):
            raise ValueError(f"--only {axis}={text}: a value is empty. Give one, or several as {axis}=1e-5,3e-5.")
        return {label: {axis: label} for label in chosen}
    if not labels.keys() >= set(chosen):
        raise ValueError(f"--only {axis}={text}: the axis has the labels {', '.join(labels)}.")
    return {label: labels[label] for label in chosen}


def _changed(
    axis: str, labels: Labels, changes: Mapping[str, str], sharing: Mapping[str, str], *, num_ranks: int
) -> Labels:
    """The axis with the user's values, and each batch divided among the ranks and into steps that fit into a GPU."""
    concerned = changes.keys() & {name for options in labels.values() for name in options}
    if concerned and (is_list(axis, labels) or len(labels) > 1):
        remedy = f"--only {axis}=... {'instead' if is_list(axis, labels) else 'first'}"
        raise ValueError(f"--set {min(concerned)}: the axis {axis} sets it. Choose one of its values by {remedy}.")
    return {
        label: {
            **options,
            **{name: changes[name] for name in concerned},
            **(
                share_batch(int(options["batch-size"]), sharing, num_ranks=num_ranks) if "batch-size" in options else {}
            ),
        }
        for label, options in labels.items()
    }


def share_batch(batch: int, sharing: Mapping[str, str], *, num_ranks: int) -> dict[str, str]:
    """A batch as the options batch-size and update-freq: batch = batch-size x ranks x update-freq.

    Example:
        share_batch(32, {"batch-size": "4"}, num_ranks=2)  ->  {"batch-size": "4", "update-freq": "4"}
    """
    for name, value in sharing.items():
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"--set {name} must be a whole number from 1 on, got {value!r}.")
    factors = {name: int(value) for name, value in sharing.items()}
    size, freq = factors.get("batch-size"), factors.get("update-freq")
    parts = num_ranks * (size or 1) * (freq or 1)
    if batch % parts or (len(factors) == 2 and parts != batch):
        chosen = "".join(f" x {name} {value}" for name, value in factors.items())
        raise ValueError(
            f"A batch of {batch} examples cannot be divided among {num_ranks} GPU{'s' * (num_ranks > 1)} per "
            f"run{chosen}: batch-size x GPUs x update-freq must be {batch}. Choose divisors of {batch}; --set "
            "batch-size alone is enough, update-freq follows from it."
        )
    size = size or batch // parts
    return {"batch-size": str(size), "update-freq": str(batch // (num_ranks * size))}
