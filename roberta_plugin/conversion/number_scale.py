"""A regression on own data learns (label - mean) / deviation: a checkpoint for use answers on the scale of the labels.

The last layer of its head, W x + b, becomes deviation * W x + (deviation * b + mean).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.models.checkpoints import CLASSIFICATION, saved_options


def on_scale_of_labels(state: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's content with the fine-tuned head rescaled to the labels; other checkpoints are unchanged.

    Its settings lose mean and deviation, so that calling this again changes nothing.
    """
    trained = identity.of_checkpoint(state)
    settings = dict(trained.get("settings") or {})
    if not _is_of_numbers(settings) or not {"mean", "deviation"} <= settings.keys():
        return dict(state)
    mean, deviation = settings.pop("mean"), settings.pop("deviation")
    task_state = {**state["task_state"], identity.KEY: {**trained, "settings": settings}}
    return {**_scaled(state, deviation, mean), "task_state": task_state}


def on_scale_of_training(state: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite, to evaluate a model on its data after export and import."""
    trained = identity.of_checkpoint(state).get("settings") or {}
    if "deviation" not in settings or "deviation" in trained or not _is_of_numbers(trained):
        return dict(state)
    return _scaled(state, 1 / settings["deviation"], -settings["mean"] / settings["deviation"])


def _is_of_numbers(settings: Mapping[str, Any]) -> bool:
    """Whether the kind that settings name learns numbers."""
    kind = settings.get("kind")
    return kind in KINDS and kind_class(str(kind)).name == "regression"


def _scaled(state: Mapping[str, Any], factor: float, shift: float) -> dict[str, Any]:
    """The checkpoint with the output of the fine-tuned head times a factor, plus a number."""
    name = f"{CLASSIFICATION}{saved_options(state)[0]['classification_head_name']}.out_proj."
    weight, bias = (state["model"][name + part] for part in ("weight", "bias"))
    scaled = {
        name + "weight": (weight.double() * factor).to(weight.dtype),
        name + "bias": (bias.double() * factor + shift).to(bias.dtype),
    }
    return {**state, "model": {**state["model"], **scaled}}
