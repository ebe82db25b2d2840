"""A checkpoint and a prepared split -> the model's raw outputs for every sequence of the split."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
import torch
from fairseq import utils
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

import roberta_plugin
from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.portable import heads_of, labels_of, rescale_to_training
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.kinds.outputs import OutputCollector, RawOutputs
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.hub.running import run_batches
from roberta_plugin.models.checkpoints import (
    load_parameters,
    model_arguments,
    saved_options,
)
from roberta_plugin.models.head_parameters import is_of_head
from roberta_plugin.models.precision import set_precision
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)

_MOST_SHOWN = 8  # labels
_FAIRSEQS, _OURS = "sentence_prediction", "roberta_sentence_prediction"  # the same inputs and heads


def load_model(checkpoint: str | os.PathLike[str], prepared: Prepared, *, split: str | None = None) -> tuple[Any, Any]:
    """A fine-tuned model and its task, for data prepared as its training data were.

    The model is in evaluation mode, on the CPU. With a `split` to evaluate, its rows must not have been trained on, as
    far as the settings say.

    Raises:
        ValueError: if it was not fine-tuned on a task like the folder's, has other words or heads, or cannot
            be loaded safely.
    """
    roberta_plugin.register()
    path = Path(checkpoint)
    state = rescale_to_training(load_state(path), prepared.settings)
    options, _ = saved_options(state)
    trained_on = options.get("_name")
    kind = kind_of(prepared)
    wanted = kind.task
    is_pretrained = not kind.head and not identity.read_record(state).get("task")  # which has vectors, too
    if trained_on != wanted and (trained_on, wanted) != (_FAIRSEQS, _OURS) and not is_pretrained:
        raise ValueError(
            f"{path} was trained on --task {trained_on}, and {prepared.folder} is for --task {wanted}: give a "
            "checkpoint that was fine-tuned on data of this kind."
        )
    identity.check_words(state, prepared, checkpoint=path)
    _order_own_classes(state, prepared, path)
    identity.check_task(state, prepared, checkpoint=path)
    _order_classes(state, prepared, path)
    if split is not None:
        identity.check_held_out(state, prepared, split, checkpoint=path)
    arguments = model_arguments(state, path)
    shapes = {name: tensor.shape for name, tensor in state["model"].items()}
    task = _task_like(wanted, {**options, "data": str(prepared.folder), "max_positions": arguments.max_positions})
    model = task.build_model(arguments, from_checkpoint=True)
    load_parameters(model, state, path)
    heads = {name: value.shape for name, value in model.state_dict().items() if is_of_head(name)}
    wrong = [name for name, shape in heads.items() if shapes.get(name) != shape]
    if wrong:
        raise ValueError(
            f"{path} has no head that fits {prepared.folder}, prepared for {prepared.task}: {wrong[0]} is missing or "
            f"has another shape. Give a checkpoint that was fine-tuned on {prepared.task}."
        )
    return model.eval(), task


def _order_own_classes(state: dict[str, Any], prepared: Prepared, path: Path) -> None:
    """Put the classes of a model of ours into the order of the data, in place, if they are the same by their names."""
    trained_on = identity.read_record(state)
    settings = trained_on.get("settings") or {}
    theirs, ours = settings.get("labels") or (), prepared.settings.get("labels") or ()
    if not trained_on.get("task") or list(theirs) == list(ours) or sorted(map(str, theirs)) != sorted(map(str, ours)):
        return
    rows = identity.class_order(theirs, prepared, checkpoint=path)
    heads = [head for head in heads_of(state) if head.facts.has_labels and labels_of(state, head)]
    parts = [f"{head.module}.out_proj.{part}" for head in heads for part in ("weight", "bias")]
    parts = [name for name in parts if name in state["model"]]
    if not parts or any(len(state["model"][name]) != len(rows) for name in parts):
        return  # of a head whose rows are not classes
    state["model"] |= {name: state["model"][name][rows] for name in parts}
    data = {**trained_on, "settings": {**settings, "labels": list(ours)}}
    state["task_state"] = {**state["task_state"], identity.KEY: data}
    before, now = (
        ", ".join([*map(str, labels[:_MOST_SHOWN]), *["..."] * (len(labels) > _MOST_SHOWN)])
        for labels in (theirs, ours)
    )
    logger.warning(f"{path}: its labels are {before}, and are put into the order of {prepared.folder}: {now}.")


def _order_classes(state: dict[str, Any], prepared: Prepared, path: Path) -> None:
    """Put the classes of a model that was made elsewhere into the order of the data, in place.

    fairseq's own preprocessing numbers them by frequency, and Hugging Face's models have any order.
    """
    trained_on, is_fairseqs = identity.read_record(state), saved_options(state)[0].get("_name") == _FAIRSEQS
    if trained_on.get("task") or not (trained_on or is_fairseqs) or not prepared.settings.get("labels"):
        return
    for head in heads_of(state):
        if not head.facts.has_labels:
            continue
        labels = labels_of(state, head)
        if not labels:
            raise ValueError(
                f"{path} does not name its {head.num_outputs} classes: name them in its order by `roberta import "
                f"{path} --labels NAME ... --output-dir FOLDER`, and evaluate that folder."
            )
        order = identity.class_order(labels, prepared, checkpoint=path)
        for name in (f"{head.module}.out_proj.weight", f"{head.module}.out_proj.bias"):
            state["model"][name] = state["model"][name][order]


def _task_like(name: str, options: Mapping[str, Any]) -> Any:
    """One of our tasks, with the plain options of a checkpoint that the task has too."""
    config = TASK_DATACLASS_REGISTRY[name]()
    config.seed = 1  # the default follows an option of fairseq-train
    for field in fields(config):
        if isinstance(options.get(field.name), str | int | float | bool):
            setattr(config, field.name, options[field.name])
    return TASK_REGISTRY[name].setup_task(config)


def run_model(
    model: Any,
    task: Any,
    split: PreparedSplit,
    *,
    max_tokens: int = 16384,
    device: str | torch.device = "cpu",
    precision: str = "fp32",
    show_progress: bool = False,
) -> RawOutputs:
    """Run a fine-tuned model over a split.

    An example of more than `max_tokens` positions has a batch of its own. `precision` changes the model
    (`models/precision.py`).
    """
    dataset = task.training.inputs_class(
        split, pad_id=task.vocabulary.pad_id, vocab_size=len(task.vocabulary), seed=1, most_counted=max_tokens
    )
    if not len(dataset):
        raise ValueError(f"{split.folder}: the split {split.name!r} has no examples.")
    batches = dataset.batches(1, max_tokens=max_tokens)
    kind = task.kind
    pools_windows = kind.window_pooling is not None
    collected = OutputCollector(split, kind.outputs, by=kind.outputs_by, pools_windows=pools_windows)
    model = model.to(device)
    set_precision(model, precision, torch.device(device))

    def run(addresses: Any) -> None:
        batch = dataset.__getitems__(addresses)
        on_device = utils.apply_to_sample(lambda tensor: tensor.to(device), batch)
        collected.add(batch, task.outputs(model, on_device))

    run_batches(model, terminal_bar(batches, split.name, unit="batch") if show_progress else batches, run)
    return collected.outputs()
