"""The grid of a fine-tuning: the paper's recipe for the data, with what the settings change.

    prepared data  --benchmark, epochs, batches-->                recipe of the paper
    recipe         --select, quick, only, seeds-->                recipe
    recipe         --model, options of fairseq-train, ranks-->    Grid

Options that do not fit the data, or that an axis sets already, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from roberta_plugin.experiments.settings import TuningSettings
from roberta_plugin.experiments.starting_model import Start
from roberta_plugin.experiments.sweeps.grid import Grid, checked_seeds, is_list
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.base import PaperRecipe
from roberta_plugin.finetuning.kinds import error_metrics
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.preparation import check_measurable
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.launch.run_folder import Metric
from roberta_plugin.models.config import ARCHITECTURE
from roberta_plugin.runs import RUNS, read_record
from roberta_plugin.settings import short

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
_BATCH = ("batch-size", "update-freq")
_REFUSED = {
    "max-tokens": "the paper counts a batch in examples; give batch-size, how many of them a GPU takes at once",
    "max-sentences": "this is fairseq's other name for batch-size; give that",
    "distributed-world-size": "give --gpus-per-run, or with --slurm gpus_per_node",
    "data": "give --data, which is also what the runs are evaluated on",
    "task": "it follows from the TASK of this command",
    "criterion": "it follows from the TASK of this command",
    "finetune-from-model": "give --model",
    "train-subset": "runs are trained on the split train, and chosen by the development set",
    "maximize-best-checkpoint-metric": "it follows from the metric of --select",
}


def tuning_grid(
    settings: TuningSettings, prepared: Prepared, start: Start | None, *, path: Path, num_gpus: int
) -> Grid:
    """The grid of the paper's recipe for prepared data, with what the settings change, for a file at `path`.

    Args:
        start: what the runs start from; None: an axis says it, which the caller adds.
        num_gpus: of a run, which share the recipe's batch: its size does not change; 0: the CPU computes.

    Raises:
        ValueError: if the data cannot be trained on; if the settings do not fit the task, or give an option that others
            determine or that an axis varies; or if the batch cannot be divided among the GPUs.
    """
    for split, what in (("train", "to train on"), ("valid", "to choose checkpoints by")):
        if split not in prepared.splits:
            raise ValueError(
                f"{prepared.folder} has no split {split!r} {what}; it has {', '.join(prepared.splits)}: add its file "
                f"to the raw files, delete {prepared.folder}, and run the same command again."
            )
    benchmark, changes = benchmark_of(prepared.task), settings.options_of_runs
    kind = benchmark.kind_for(prepared.settings)
    recipe = benchmark.recipe(prepared, epochs=settings.epochs, batches=settings.batches)
    kind.check_scoring(settings.task_options, prepared.split("valid"))
    if "label-smoothing" in changes:
        kind.check_smoothing()
    metric = selected_metric(settings, prepared, kind, changes.pop("best-checkpoint-metric", None))
    recipe = restricted(recipe if metric is None else selecting(recipe, metric), settings)
    model = {} if start is None else start.train_options(prepared.settings["max_length"])
    for name, value in changes.items():
        if name in _REFUSED:
            raise ValueError(f"--set {name}={value}: {_REFUSED[name]}.")
        if name == "arch" or name.replace("-", "_") in ARCHITECTURE:
            of_model = f" ({model[name]})" if name in model else ""
            raise ValueError(f"--set {name}={value}: the architecture is the pretrained model's{of_model}.")
    check_saving(settings, changes)
    sharing = {name: changes.pop(name) for name in _BATCH if name in changes}
    options = {**({} if num_gpus else {"cpu": "true"}), **({} if start is None else start.initial), **changes}
    num_ranks = max(1, num_gpus)
    return Grid(
        path=path,
        options={
            "data": str(prepared.folder.resolve()),
            **_COMMON,
            **recipe.train,
            "distributed-world-size": str(num_ranks),
            **model,
            **options,
        },
        axes={
            axis: _changed(axis, labels, options, sharing, num_ranks=num_ranks) for axis, labels in recipe.axes.items()
        },
        seeds=checked_seeds(list(recipe.seeds), where=f"{path}: seeds"),
        metric=Metric(**{**recipe.metric, "at": settings.checkpoint}),
        slurm=settings.slurm,
    )


def check_saving(settings: TuningSettings, changes: Mapping[str, str]) -> None:
    """Refuse options of fairseq-train without which a run has no checkpoint that can be its result."""
    for name in ("no-save", *(["no-last-checkpoints"] if settings.checkpoint == "last" else [])):
        if changes.get(name, "false") != "false":
            raise ValueError(
                f"--set {name}={changes[name]}: the result of a run is its {settings.checkpoint} checkpoint. Leave the "
                "option out."
            )


def selected_metric(settings: TuningSettings, prepared: Prepared, kind: Kind, by_set: str | None) -> str | None:
    """The metric that --select names, or --set best-checkpoint-metric; None: the recipe's.

    Raises:
        ValueError: if a validation of the task does not log it: names those that it does.
    """
    name, option = (settings.select, "--select") if settings.select else (by_set, "--set best-checkpoint-metric")
    if name is None:
        return None
    if by_set not in (None, name):
        raise ValueError(f"--select {name} and --set best-checkpoint-metric={by_set} contradict each other.")
    names, of_labels, found = kind.selectable(), kind.label_metrics(), kind.metric_named(name)
    if found not in (*names, *of_labels):
        shown = [*names, *([f"the F1 of a label ({', '.join(list(of_labels)[:_MOST_SHOWN])})"] if of_labels else [])]
        raise ValueError(f"{option} {name}: {settings.task} is not validated by it, but by {', '.join(shown)}.")
    check_measurable(prepared, "valid", name, option=option)
    return name if name != found and _are_begun_by(name, settings.output_dir / RUNS) else found


def _are_begun_by(metric: str, runs: Path) -> bool:
    """True if runs that are there choose by a metric of this former name: they continue with it."""
    records = filter(None, map(read_record, runs.glob("*/seed-*")))
    return any(("--best-checkpoint-metric", metric) in pairwise(record.arguments) for record in records)


def restricted(recipe: PaperRecipe, settings: TuningSettings) -> PaperRecipe:
    """The recipe with the values and seeds that the settings choose.

    Raises:
        ValueError: if --only names no axis, or a label that an axis does not have. An axis of values takes any value.
    """
    if settings.quick:
        recipe = quickened(recipe, all_of=settings.only)
    axes = dict(recipe.axes)
    for name, text in settings.only.items():
        if name not in axes:
            raise ValueError(f"--only {name}={text}: the recipe has no such axis; it has {', '.join(axes) or 'none'}.")
        labels, chosen = axes[name], text.split(",")
        if is_list(name, labels):
            if not all(chosen):
                raise ValueError(f"--only {name}={text}: a value is empty. Give one, or several as {name}=1e-5,3e-5.")
            labels = {label: {name: label} for label in chosen}
        elif not labels.keys() >= set(chosen):
            raise ValueError(f"--only {name}={text}: the axis has the labels {', '.join(labels)}.")
        axes[name] = {label: labels[label] for label in chosen}
    return replace(recipe, axes=axes, seeds=settings.seeds or recipe.seeds)


def quickened(recipe: PaperRecipe, *, all_of: Iterable[str] = ()) -> PaperRecipe:
    """The recipe with one run: the first seed, and the middle value of every axis that is not in `all_of` (of two,
    the second).

    Example: learning rates 1e-5, 2e-5, 3e-5, batches 16, 32 and five seeds -> 2e-5, 32 and seed 1.
    """

    axes = {
        name: labels if name in all_of else dict([list(labels.items())[len(labels) // 2]])
        for name, labels in recipe.axes.items()
    }
    return replace(recipe, axes=axes, seeds=list(recipe.seeds[:1]))


def selecting(recipe: PaperRecipe, metric: str) -> PaperRecipe:
    """The recipe with another metric that chooses; it is among a run's own options: another choice is another run."""
    goal = "min" if metric in error_metrics() else "max"
    maximize = {"maximize-best-checkpoint-metric": "true"} if goal == "max" else {}
    return replace(
        recipe,
        train={**recipe.train, "best-checkpoint-metric": metric, **maximize},
        metric={**recipe.metric, "value": metric, "goal": goal},
    )


def _changed(
    axis: str, labels: Mapping[str, Any], changes: Mapping[str, str], sharing: Mapping[str, str], *, num_ranks: int
) -> dict[str, dict[str, str]]:
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
            raise ValueError(f"--set {name} must be a whole number from 1 on, got {short(value)}.")
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
