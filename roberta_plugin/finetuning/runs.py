"""A prepared folder, a pretrained model and the paper's recipe -> the grid file of all fine-tuning runs.

The grid is that of `roberta sweep`: every combination of the axes, with every seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.suites import Recipe

# What every run has, whatever the suite: of the checkpoints, the best and the last one, without which it cannot resume.
_COMMON = {
    "no-epoch-checkpoints": "true",
    "keep-interval-updates": "1",
    "find-unused-parameters": "true",  # on several GPUs: the masked-LM head has no gradient
    "num-workers": "0",
    "log-interval": "50",
    "tensorboard-logdir": "{folder}/tensorboard",
}


def grid_of(
    recipe: Recipe,
    *,
    data: Path,
    model: Mapping[str, str],
    checkpoint: Path | None,
    changes: Mapping[str, str],
    only: Mapping[str, str],
    seeds: Sequence[str] | None,
    slurm: Mapping[str, str],
) -> dict[str, Any]:
    """The content of the grid file.

    Args:
        recipe: the suite's.
        data: prepared folder.
        model: options of the architecture.
        checkpoint: what training starts from; None: random weights.
        changes: options of fairseq-train instead of the recipe's, or besides.
        only: axis -> the one label that is kept of it, or a value that the recipe does not have.
        seeds: instead of the recipe's.
        slurm: what each run asks SLURM for.

    Raises:
        ValueError: if `only` names no axis, or `changes` an option of which an axis tries several values.
    """
    axes = dict(recipe.axes)
    for name, label in only.items():
        if name not in axes:
            raise ValueError(f"--only {name}={label}: the recipe has no such axis; it has {', '.join(axes) or 'none'}.")
        axes[name] = _restricted(name, axes[name], label)
    axes = {name: _changed(name, choices, changes) for name, choices in axes.items()}
    start = {"finetune-from-model": str(checkpoint.resolve())} if checkpoint else {}
    content = {
        "train": {"data": str(data.resolve()), **_COMMON, **recipe.train, **model, **start, **changes},
        "axes": axes,
        "seeds": list(seeds or recipe.seeds),
        "metric": dict(recipe.metric),
    }
    return {**content, "slurm": dict(slurm)} if slurm else content


def _restricted(name: str, choices: Any, label: str) -> Any:
    if isinstance(choices, Mapping):
        if label not in choices:
            raise ValueError(f"--only {name}={label}: the axis has the labels {', '.join(choices)}.")
        return {label: choices[label]}
    return [label]


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


def as_yaml(content: Mapping[str, Any]) -> str:
    """The grid as a file's text. JSON is YAML, and leaves no doubt of what is a string."""
    return json.dumps(content, indent=2) + "\n"
