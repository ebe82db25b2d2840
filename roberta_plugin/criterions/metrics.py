"""Sums of all ranks -> the figures of the log.

Every criterion logs sums only, so fairseq may add the logs of all ranks before it reduces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from fairseq import utils
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from torch import Tensor


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
    _log_next_sentence(outputs)


def _log_next_sentence(outputs: list[Mapping[str, Any]]) -> None:
    """Log `nsp_loss` (bits per pair) and `nsp_accuracy` (percent), in training too."""
    num_pairs = sum(output.get("nsp_counted", 0) for output in outputs)
    if num_pairs > 0:
        loss = sum(output.get("nsp_loss", 0) for output in outputs) / num_pairs / math.log(2)
        metrics.log_scalar("nsp_loss", loss, num_pairs, round=3)
        correct = sum(output.get("nsp_correct", 0) for output in outputs)
        metrics.log_scalar("nsp_accuracy", 100.0 * correct / num_pairs, num_pairs, round=2)


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
    """Log `loss` (nats per example) and `padding` (percent of the positions)."""
    outputs = list(logging_outputs)
    _log_loss(outputs, unit=1.0, digits=4)
    if num_positions := sum(output.get("npositions", 0) for output in outputs):
        num_tokens = sum(output["ntokens"] for output in outputs)
        metrics.log_scalar("padding", 100.0 * (1 - num_tokens / num_positions), num_positions, round=2)


def _log_loss(outputs: list[Mapping[str, Any]], *, unit: float, digits: int) -> None:
    """Log `loss`, the mean over the samples divided by `unit` nats; empty batches are ignored.

    They are logged with the weight 0: where the name is missing, fairseq's trainer enters a loss of -1.
    """
    sample_size = sum(output.get("sample_size", 0) for output in outputs)
    total = sum(output.get("loss", 0) for output in outputs)
    mean = total / sample_size / unit if sample_size else 0.0
    metrics.log_scalar("loss", mean, sample_size, round=digits)


def log_quotient(name: str, above: float, below: float) -> None:
    """Log 100 times the quotient of two sums, each over the whole log interval or validation, not rounded."""
    metrics.log_scalar_sum(f"_{name}_above", above)
    metrics.log_scalar_sum(f"_{name}_below", below)
    metrics.log_derived(name, partial(quotient, name=name))


def quotient(meters: Mapping[str, Any], name: str) -> float:
    """What `log_quotient` logs as `name`, 0 if there is nothing to divide by."""
    below = float(meters[f"_{name}_below"].sum)
    return 100.0 * float(meters[f"_{name}_above"].sum) / below if below else 0.0


class TensorSum(MetersDict._DerivedMeter):  # type: ignore[misc]
    """A tensor summed over the batches of a validation.

    It is a derived meter because fairseq leaves only these out of checkpoints: it saves all other meters, and on
    resuming can only rebuild its own kinds.
    """

    def __init__(self) -> None:
        super().__init__(lambda meters: math.nan)
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self.total = torch.zeros((), dtype=torch.float64)

    def update(self, value: Tensor) -> None:
        """Add a tensor of the same shape."""
        self.total = self.total + value.detach().to("cpu", torch.float64)


def placed(values: Tensor, index: Tensor, *, size: int) -> Tensor:
    """Rows `values` (B, ...) at `index` (B,) of a tensor of zeros (size, ...), float64.

    Summed over all batches of all ranks, it holds the rows of the whole split, for metrics that are not a mean over
    examples.

    Example: placed([7, 8], [3, 1], size=4) is [0, 8, 0, 7].
    """
    result = torch.zeros(size, *values.shape[1:], dtype=torch.float64, device=values.device)
    result[index] = values.to(torch.float64)
    return result


def log_sum(name: str, logging_outputs: Iterable[Mapping[str, Any]]) -> None:
    """Add up the tensors logged under `name`, for metrics of `log_from_sums`; in validation only."""
    for output in logging_outputs:
        if name in output:
            metrics.log_custom(TensorSum, f"_{name}", output[name])


def log_from_sums(
    name: str,
    function: Callable[[Mapping[str, Tensor]], float],
    *,
    num_examples: int | None = None,
) -> None:
    """Log a metric that is a function of the sums of a whole validation.

    Args:
        name: what the metric is called in the log.
        function: sums by name, float64 tensors -> the metric.
        num_examples: fairseq asks for metrics after every batch as well; with this number, the answer is NaN, at no
            cost, until the sum called `counted` has as many.
    """

    def derive(meters: Mapping[str, Any]) -> float:
        sums = {key[1:]: meter.total for key, meter in meters.items() if isinstance(meter, TensorSum)}
        if num_examples is not None and int(sums["counted"].sum()) < num_examples:
            return math.nan
        return function(sums)

    metrics.log_derived(name, derive)
