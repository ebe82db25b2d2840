"""A prepared folder, a pretrained model and the paper's recipe -> the grid file of all fine-tuning runs.

The grid is that of `roberta sweep`: every combination of the axes, with every seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.training.resources import Resources, given_settings

# Options of every run. It keeps the best checkpoint, and the last one to resume from.
_COMMON = {
    "no-epoch-checkpoints": "true",
    "keep-interval-updates": "1",
    "find-unused-parameters": "true",  # on several GPUs: the masked-LM head has no gradient
    "num-workers": "0",
    "log-interval": "50",
    "tensorboard-logdir": "{folder}/tensorboard",
}


_BATCH = ("batch-size", "update-freq")
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


def grid_of(
    recipe: PaperRecipe,
    *,
    data: Path,
    model: Mapping[str, str],
    checkpoint: Path | None,
    changes: Mapping[str, str],
    only: Mapping[str, str],
    seeds: Sequence[str] | None,
    slurm: Resources | None,
    metric: tuple[str, str] | None = None,
    num_ranks: int = 1,
) -> dict[str, Any]:
    """The content of the grid file.

    Args:
        recipe: the benchmark's.
        data: prepared folder.
        model: options of the architecture.
        checkpoint: what training starts from; None: random weights.
        changes: options of fairseq-train that replace or extend the recipe's.
        only: axis -> the label that is kept of it, or a value that the recipe does not have; or several: `1e-4,3e-4`.
        seeds: replace the recipe's.
        slurm: resources of each run.
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
    axes = dict(recipe.axes)
    for name, label in only.items():
        if name not in axes:
            raise ValueError(f"--only {name}={label}: the recipe has no such axis; it has {', '.join(axes) or 'none'}.")
        axes[name] = _restricted(name, axes[name], label)
    sharing = {name: changes[name] for name in _BATCH if name in changes}
    changes = {name: value for name, value in changes.items() if name not in _BATCH}
    axes = {name: _changed(name, choices, changes) for name, choices in axes.items()}
    axes = {name: _shared_out(choices, sharing, num_ranks=num_ranks) for name, choices in axes.items()}
    ranks = {"distributed-world-size": str(num_ranks)}
    start = {"finetune-from-model": str(checkpoint.resolve())} if checkpoint else {}
    chosen = dict(recipe.metric)
    if metric is not None:
        chosen |= {"value": metric[0], "goal": metric[1]}
        changes["best-checkpoint-metric"] = metric[0]  # among a run's own options: another choice is another run
        if metric[1] == "max":
            changes["maximize-best-checkpoint-metric"] = "true"
    content = {
        "train": {"data": str(data.resolve()), **_COMMON, **recipe.train, **ranks, **model, **start, **changes},
        "axes": axes,
        "seeds": list(seeds or recipe.seeds),
        "metric": chosen,
    }
    return content if slurm is None else {**content, "slurm": given_settings(slurm)}


def quickened(recipe: PaperRecipe) -> PaperRecipe:
    """The recipe with one run: the first seed, and of each axis the value in the middle (of two, the second).

    Example: learning rates 1e-5, 2e-5, 3e-5, batches 16, 32 and five seeds -> 2e-5, 32 and seed 1.
    """

    def middle(choices: Any) -> Any:
        if isinstance(choices, Mapping):
            name = list(choices)[len(choices) // 2]
            return {name: choices[name]}
        return [choices[len(choices) // 2]]

    axes = {name: middle(choices) for name, choices in recipe.axes.items()}
    return replace(recipe, axes=axes, seeds=list(recipe.seeds[:1]))


def _restricted(name: str, choices: Any, label: str) -> Any:
    labels = label.split(",")
    if isinstance(choices, Mapping):
        if not choices.keys() >= set(labels):
            raise ValueError(f"--only {name}={label}: the axis has the labels {', '.join(choices)}.")
        return {label: choices[label] for label in labels}
    return labels


def _changed(axis: str, choices: Any, changes: Mapping[str, str]) -> Any:
    """The axis with the user's values; a batch, for instance, in parts that fit into a GPU."""
    is_named = isinstance(choices, Mapping)
    concerned = changes.keys() & ({name for options in choices.values() for name in options} if is_named else {axis})
    if concerned and (not is_named or len(choices) > 1):
        remedy = f"--only {axis}=... {'first' if is_named else 'instead'}"
        raise ValueError(f"--set {min(concerned)}: the axis {axis} sets it. Choose one of its values by {remedy}.")
    if not is_named:
        return choices
    return {label: {**options, **{name: changes[name] for name in concerned}} for label, options in choices.items()}


def _shared_out(choices: Any, sharing: Mapping[str, str], *, num_ranks: int) -> Any:
    """Choices of an axis, whose batch is divided into what one rank takes at once, and how many times."""
    if not isinstance(choices, Mapping):
        return choices
    return {
        label: {**options, **share_batch(int(options["batch-size"]), sharing, num_ranks=num_ranks)}
        if "batch-size" in options
        else options
        for label, options in choices.items()
    }


def share_batch(batch: int, sharing: Mapping[str, str], *, num_ranks: int) -> dict[str, str]:
    """A batch as the options batch-size and update-freq: batch = batch-size x ranks x update-freq.

    Example:
        share_batch(32, {"batch-size": "4"}, num_ranks=2)  ->  {"batch-size": "4", "update-freq": "4"}

    Args:
        batch: examples of an update.
        sharing: values of the two options that the user has given; none, one or both.
        num_ranks: GPUs, or 1.

    Raises:
        ValueError: if the batch cannot be divided like this.
    """
    for name, value in sharing.items():
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"--set {name} must be a whole number from 1 on, got {value!r}.")
    given = {name: int(value) for name, value in sharing.items()}
    size, freq = given.get("batch-size"), given.get("update-freq")
    parts = num_ranks * (size or 1) * (freq or 1)
    if batch % parts or (len(given) == 2 and parts != batch):
        chosen = "".join(f" x {name} {value}" for name, value in given.items())
        raise ValueError(
            f"A batch of {batch} examples cannot be divided among {num_ranks} GPU{'s' * (num_ranks > 1)} per "
            f"run{chosen}: batch-size x GPUs x update-freq must be {batch}. Choose divisors of {batch}; --set "
            "batch-size alone is enough, update-freq follows from it."
        )
    size = size or batch // parts
    return {"batch-size": str(size), "update-freq": str(batch // (num_ranks * size))}


def as_yaml(content: Mapping[str, Any]) -> str:
    """The grid as text: JSON, which is also YAML and shows which values are strings.

    Characters beyond the first 65,536 stay as they are: JSON's escape for them, a pair of surrogates, is not YAML's.
    """
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
