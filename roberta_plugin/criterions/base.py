"""What all criterions share: sums of all ranks -> the figures of the log, and outputs of a validation -> its metrics.

Every criterion logs sums only, so fairseq may add the logs of all ranks before it reduces them. In a validation, every
rank gets the outputs of all ranks, of batches in any order, and judges them at the end (`Kind.validated`), as `roberta
evaluate` does.

Shapes: B examples of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.distributed import utils as distributed
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.logging import metrics
from torch import Tensor

from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.outputs import OutputCollector
from roberta_plugin.finetuning.prepared import PreparedSplit

SUM, NUMBER = "sum_of_", "number_of_"  # beginnings of names: a sum, and what it is divided by
_SUMS = LOSS, CORRECT, COUNTED = "sequence_loss_", "sequences_correct_", "sequences_counted_"  # likewise, of a task


class SummedCriterion(OwnGroup, FairseqCriterion):  # type: ignore[misc]
    """A summed loss; fairseq divides it by the sum of the sample sizes of all batches and ranks of an update."""

    name: ClassVar[str]
    """The name under which it is registered; also the name of its task."""

    def check_reduction(self, reduce: bool) -> None:
        """Refuse to return the loss of each sample."""
        if not reduce:
            raise ValueError(f"The criterion {self.name} returns the summed loss only: call it with reduce=True.")

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Every logged value is a sum, so fairseq may add them across ranks before reducing."""
        return True


def log_masked_lm(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
    """Log `loss` (bits per predicted token), `ppl` = 2^loss, `padding` and, where it was counted, `accuracy` (percent).

    `padding` is the share of positions that are padding, in percent. fairseq's `wps` does not count them.

    `accuracy` is the share of predicted positions whose most probable token is correct. It needs the logits, which the
    training loss never forms, so only validation has it.
    """
    outputs = list(logging_outputs)
    _log_loss(outputs, unit=math.log(2), digits=3)
    metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
    if sum(output.get("sample_size", 0) for output in outputs) == 0:  # no position of these batches is predicted
        return
    num_positions = sum(output.get("npositions", 0) for output in outputs)
    if num_positions > 0:
        num_tokens = sum(output.get("ntokens", 0) for output in outputs)
        metrics.log_scalar("padding", 100.0 * (1 - num_tokens / num_positions), num_positions, round=2)
    if sum(output.get("flops", 0) for output in outputs) > 0:
        _log_speed(outputs)
    num_counted = sum(output.get("num_counted", 0) for output in outputs)
    if num_counted > 0:
        num_correct = sum(output.get("num_correct", 0) for output in outputs)
        metrics.log_scalar("accuracy", 100.0 * num_correct / num_counted, num_counted, round=2)
    _log_sequence_tasks(outputs)


def _log_sequence_tasks(outputs: list[Mapping[str, Any]]) -> None:
    """Log `TASK_loss` (bits per sequence) and `TASK_accuracy` (percent) of each task, in training too."""
    for task in sorted({key.removeprefix(COUNTED) for output in outputs for key in output if key.startswith(COUNTED)}):
        total, correct, number = (sum(output.get(f"{key}{task}", 0) for output in outputs) for key in _SUMS)
        if number > 0:
            metrics.log_scalar(f"{task}_loss", total / number / math.log(2), number, round=3)
            metrics.log_scalar(f"{task}_accuracy", 100.0 * correct / number, number, round=2)


def _log_speed(outputs: list[Mapping[str, Any]]) -> None:
    """Log `tflops` (10^12 FLOP/s of all devices), `mfu` (percent of their peak, where it is known), `stall` (percent).

    `hfu` is `mfu` with the FLOPs that were executed: the last layer computes the predicted positions only, and with
    --checkpoint-activations layers are computed again.

    `stall` is the share of the time that passed outside of training steps: waiting for data, logging, saving. `graphs`,
    with compiled layers, is how many graphs a rank has compiled so far.
    """
    flops = sum(output.get("flops", 0) for output in outputs)
    metrics.log_speed("tflops", flops / 1e12, priority=910, round=3)
    num_outputs = sum(output.get("noutputs", 0) for output in outputs)
    peak = sum(output.get("peak_flops", 0) for output in outputs) / num_outputs
    if peak > 0:
        all_devices = peak / 1e12 * get_data_parallel_world_size()
        metrics.log_derived("mfu", lambda meters: round(100.0 * meters["tflops"].avg / all_devices, 1), priority=911)
        share = sum(output.get("executed_flops", 0) for output in outputs) / flops
        metrics.log_scalar("_executed", share, weight=1)
        metrics.log_derived(
            "hfu",
            lambda meters: round(100.0 * meters["_executed"].avg * meters["tflops"].avg / all_devices, 1),
            priority=911,
        )
    metrics.log_derived("stall", _stall, priority=912)
    graphs = sum(output.get("graphs", 0) for output in outputs) / num_outputs
    if graphs:
        metrics.log_scalar("graphs", graphs, weight=0, priority=913, round=0)


def _stall(meters: Mapping[str, Any]) -> float:
    if "train_wall" not in meters:
        return 0.0
    elapsed = meters["tflops"].elapsed_time
    return round(100.0 * max(0.0, 1.0 - meters["train_wall"].sum / elapsed), 1) if elapsed > 0 else 0.0


def log_finetuning_loss(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
    """Log `loss` (nats per example), `padding` (percent of the positions), and the means of sums under `SUM` names."""
    outputs = list(logging_outputs)
    _log_loss(outputs, unit=1.0, digits=4)
    if num_positions := sum(output.get("npositions", 0) for output in outputs):
        num_tokens = sum(output["ntokens"] for output in outputs)
        metrics.log_scalar("padding", 100.0 * (1 - num_tokens / num_positions), num_positions, round=2)
    for key in outputs[0] if outputs else ():
        if key.startswith(SUM):
            name = key.removeprefix(SUM)
            number = sum(output[f"{NUMBER}{name}"] for output in outputs)
            if number > 0:
                mean = sum(output[key] for output in outputs) / number
                metrics.log_scalar(name, mean, number, round=4 if name.endswith("_loss") else None)


def _log_loss(outputs: list[Mapping[str, Any]], *, unit: float, digits: int) -> None:
    """Log `loss`, the mean over the samples divided by `unit` nats; empty batches are ignored.

    They are logged with the weight 0: where the name is missing, fairseq's trainer enters a loss of -1.
    """
    sample_size = sum(output.get("sample_size", 0) for output in outputs)
    total = sum(output.get("loss", 0) for output in outputs)
    mean = total / sample_size / unit if sample_size else 0.0
    metrics.log_scalar("loss", mean, sample_size, round=digits)


class Validation:
    """A validation on one split."""

    def __init__(self, kind: Kind, split: PreparedSplit, options: Mapping[str, Any]) -> None:
        """`options` are those of the criterion, by which some kinds decide."""
        self._kind, self._split, self._options = kind, split, options
        self._collected = OutputCollector(
            split,
            kind.validated_outputs or kind.outputs,
            by=kind.outputs_by,
            pools_windows=kind.window_pooling is not None,
        )
        self._values: Mapping[str, float] = {}
        self._is_over = False

    def add(self, batch: Mapping[str, Any], outputs: Any) -> None:
        """Keep the outputs of a batch, and of the batches that the other ranks have at the same time.

        Some come twice: where one rank has fewer batches than another, it repeats one. With the last example all ranks
        have the metrics, and forget the outputs: fairseq keeps meters until the training ends.
        """
        if self._is_over:
            return
        part = self._collected.part(batch, self._kind.reduced(outputs))
        for each in [part] if ranks()[0] == 1 else _gather_parts(part, batch["id"].device):
            self._collected.put(each)
        if self._collected.is_complete:
            self._is_over = True
            if not self._collected.has_nan:  # the model has not diverged
                self._values = self._kind.validated(self._split, self._collected.outputs(), self._options)
            del self._collected

    def log(self, chosen: str) -> None:
        """Log the metrics of the kind; the F1 of a single label only if checkpoints are `chosen` by it.

        A run that an earlier version began may choose by a former name, under which fairseq looks for the metric. They
        are derived meters, because fairseq leaves these out of checkpoints.
        """
        kind, found = self._kind, self._kind.metric_named(chosen)
        names = {name: name for name in (*kind.metrics(), *kind.also_logged)}
        if found in (*names, *kind.label_metrics()):
            names[chosen] = found
        for name, score in names.items():
            metrics.log_derived(name, partial(self._metric, score))

    def _metric(self, name: str, _meters: Any) -> float:
        """A metric; NaN until all examples are there."""
        return self._values.get(name, math.nan)


def ranks() -> tuple[int, int]:
    """The number of data-parallel ranks, and which one this is."""
    size = distributed.get_data_parallel_world_size()
    return (size, distributed.get_data_parallel_rank()) if size > 1 else (1, 0)


def gathered(values: Tensor) -> list[Tensor]:
    """The values (B, ...) of each rank, whose B may differ, without gradients."""
    group = distributed.get_data_parallel_group()
    length = torch.tensor([len(values)], device=values.device)
    sizes = [torch.empty_like(length) for _ in range(ranks()[0])]
    torch.distributed.all_gather(sizes, length, group=group)
    counts = [int(size) for size in torch.cat(sizes).tolist()]
    padded = values.new_zeros(max(counts), *values.shape[1:])
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    torch.distributed.all_gather(parts, padded, group=group)
    return [each[:count] for each, count in zip(parts, counts, strict=True)]


def _gather_parts(part: Mapping[str, Any], device: torch.device) -> list[dict[str, Any]]:
    """The arrays of each rank, by name."""
    arrays_by_name = [
        [each.cpu().numpy() for each in gathered(torch.from_numpy(np.ascontiguousarray(values)).to(device))]
        for values in part.values()
    ]
    return [dict(zip(part, arrays, strict=True)) for arrays in zip(*arrays_by_name, strict=True)]
