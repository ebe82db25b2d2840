"""A checkpoint and a prepared split -> the model's raw outputs for every sequence of the split.

Shapes: B examples in a batch, S sequences of the batch or of the split, T positions, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
import numpy as np
import torch
from fairseq import utils
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from numpy.typing import NDArray

import roberta_plugin
from roberta_plugin.checkpoint_files import load_state as load_state
from roberta_plugin.conversion.heads import HAS_LABELS, heads_of, labels_of
from roberta_plugin.conversion.number_scale import on_scale_of_training
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import fairseq_task_of
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.models.checkpoints.building import load_parameters, model_arguments
from roberta_plugin.models.checkpoints.names import ALL_HEADS, saved_options
from roberta_plugin.progress import terminal_bar

_FAIRSEQS, _OURS = "sentence_prediction", "roberta_sentence_prediction"  # the same inputs and heads


def load_model(checkpoint: str | os.PathLike[str], prepared: Prepared) -> tuple[Any, Any]:
    """A fine-tuned model and its task, for data prepared as its training data were.

    Returns:
        The model in evaluation mode on the CPU, and fairseq's task.

    Raises:
        FileNotFoundError: if the checkpoint does not exist.
        ValueError: if it was not fine-tuned on a task like that of the folder, with other words or heads, or cannot
            be loaded safely.
    """
    roberta_plugin.register()
    path = Path(checkpoint)
    state = on_scale_of_training(load_state(path), prepared.settings)
    options, _ = saved_options(state)
    trained_on = options.get("_name")
    wanted = fairseq_task_of(prepared.task, prepared.settings)
    if trained_on != wanted and (trained_on, wanted) != (_FAIRSEQS, _OURS):
        raise ValueError(
            f"{path} was trained on --task {trained_on}, and {prepared.folder} is for --task {wanted}: give a "
            "checkpoint that was fine-tuned on data of this kind."
        )
    identity.check_words(state, prepared, checkpoint=path)
    identity.check_task(state, prepared, checkpoint=path)
    _order_classes(state, prepared, path)
    arguments = model_arguments(state, path)
    shapes = {name: tensor.shape for name, tensor in state["model"].items()}
    task = _task_like(wanted, {**options, "data": str(prepared.folder), "max_positions": arguments.max_positions})
    model = task.build_model(arguments, from_checkpoint=True)
    load_parameters(model, state, path)
    heads = {name: value.shape for name, value in model.state_dict().items() if name.startswith(ALL_HEADS)}
    wrong = [name for name, shape in heads.items() if shapes.get(name) != shape]
    if wrong:
        raise ValueError(
            f"{path} has no head that fits {prepared.folder}, prepared for {prepared.task}: {wrong[0]} is missing or "
            f"has another shape. Give a checkpoint that was fine-tuned on {prepared.task}."
        )
    return model.eval(), task


def _order_classes(state: dict[str, Any], prepared: Prepared, path: Path) -> None:
    """Put the classes of a model that was made elsewhere into the order of the data, in place.

    fairseq's own preprocessing numbers them by frequency, and Hugging Face's models have any order.

    Raises:
        ValueError: if their names are not known, or are not those of the data.
    """
    trained_on, is_fairseqs = identity.of_checkpoint(state), saved_options(state)[0].get("_name") == _FAIRSEQS
    if trained_on.get("task") or not (trained_on or is_fairseqs) or not prepared.settings.get("labels"):
        return
    for head in heads_of(state):
        if head.kind not in HAS_LABELS:
            continue
        named = labels_of(state, head)
        if not named:
            raise ValueError(
                f"{path} does not name its {head.num_outputs} classes: name them in its order by `roberta import "
                f"{path} --labels NAME ... --output-dir FOLDER`, and evaluate that folder."
            )
        order = identity.class_order(named, prepared, checkpoint=path)
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


@torch.no_grad()
def run_model(
    model: Any,
    task: Any,
    split: PreparedSplit,
    *,
    max_tokens: int = 16384,
    device: str | torch.device = "cpu",
    show_progress: bool = False,
) -> RawOutputs:
    """Run a fine-tuned model over a split.

    Args:
        model: a model of `load_model`.
        task: its task.
        split: a split of the folder that was given to `load_model`.
        max_tokens: most positions of a batch, padding included; an example that takes more has one of its own.
        device: where to compute.
        show_progress: whether to show a bar, if stderr is a terminal.
    """
    dataset = task.inputs_class(
        split, pad_id=task.vocabulary.pad_id, vocab_size=len(task.vocabulary), seed=1, most_counted=max_tokens
    )
    if not len(dataset):
        raise ValueError(f"{split.folder}: the split {split.name!r} has no examples.")
    batches = dataset.batches(1, max_tokens=max_tokens)
    collected = _Collected(split)
    model = model.to(device)
    for addresses in terminal_bar(batches, split.name, unit="batch") if show_progress else batches:
        batch = dataset.__getitems__(addresses)
        on_device = utils.apply_to_sample(lambda tensor: tensor.to(device), batch)
        collected.add(batch, task.outputs(model, on_device))
    return collected.outputs()


class _Collected:
    """Outputs of batches in any order, stored in the order of the split."""

    def __init__(self, split: PreparedSplit) -> None:
        self._split = split
        num_sequences = len(split.sequences)
        self._logits: NDArray[np.float32] | None = None
        self._answerable = np.full(num_sequences, np.nan, dtype=np.float32)
        self._starts: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * num_sequences
        self._ends = list(self._starts)
        self._has_spans = False
        self._of_tokens: list[NDArray[np.float32] | None] = [None] * num_sequences
        self._of_sentences: NDArray[np.float32] | None = None

    def add(self, batch: dict[str, Any], output: Any) -> None:
        """Keep the outputs of a batch: scores (S, C), of tokens (S, T, C) or of sentences (V,), or `SpanLogits`."""
        if isinstance(output, torch.Tensor) and output.dim() == 1:
            self._add_sentences(batch["id"].tolist(), output.float().cpu().numpy())
            return
        offsets = self._split.offsets
        rows = np.concatenate([np.arange(offsets[example], offsets[example + 1]) for example in batch["id"].tolist()])
        lengths = batch["net_input"]["src_lengths"].tolist()
        if isinstance(output, torch.Tensor) and output.dim() == 3:
            for row, length, logits in zip(rows.tolist(), lengths, output.float().cpu().numpy(), strict=True):
                self._of_tokens[row] = logits[:length].copy()
            return
        if isinstance(output, torch.Tensor):
            logits = output.float().cpu().numpy()
            if self._logits is None:
                self._logits = np.full((len(self._split.sequences), logits.shape[1]), np.nan, dtype=np.float32)
            self._logits[rows] = logits
            return
        self._has_spans = True
        self._answerable[rows] = output.answerable.float().cpu().numpy()
        starts, ends = output.start.float().cpu().numpy(), output.end.float().cpu().numpy()
        for place, (row, length) in enumerate(zip(rows.tolist(), lengths, strict=True)):
            self._starts[row], self._ends[row] = starts[place, :length].copy(), ends[place, :length].copy()

    def _add_sentences(self, examples: list[int], logits: NDArray[np.float32]) -> None:
        first = self._split.array("first_sentence")
        if self._of_sentences is None:
            self._of_sentences = np.full(first[-1], np.nan, dtype=np.float32)
        self._of_sentences[np.concatenate([np.arange(first[number], first[number + 1]) for number in examples])] = (
            logits
        )

    def outputs(self) -> RawOutputs:
        """The outputs of the whole split; every sequence must have been added."""
        if self._has_spans:
            assert not np.isnan(self._answerable).any(), "a sequence was left out"
            return RawOutputs(start_logits=self._starts, end_logits=self._ends, answerable_logits=self._answerable)
        of_tokens = [logits for logits in self._of_tokens if logits is not None]
        if of_tokens:
            assert len(of_tokens) == len(self._of_tokens), "a sequence was left out"
            return RawOutputs(token_logits=of_tokens)
        if self._of_sentences is not None:
            assert not np.isnan(self._of_sentences).any(), "a sentence was left out, or the model has diverged"
            return RawOutputs(sentence_logits=self._of_sentences)
        assert self._logits is not None
        assert not np.isnan(self._logits).any(), "a sequence was left out, or the model has diverged"
        return RawOutputs(logits=self._logits)
