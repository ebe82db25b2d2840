"""Sums from all workers -> what the log shows.

Every criterion logs sums only, so that fairseq may add the logs of all ranks before it reduces them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fairseq import utils
from fairseq.logging import metrics


def log_masked_lm(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
    """Log `loss` (bits a predicted token), `ppl` = 2^loss, `padding` and, where it was counted, `accuracy` (percent).

    `padding` is the share of positions that were computed for nothing. fairseq's `wps` counts tokens without them.

    `accuracy` is the share of predicted positions whose most probable token is the right one. It needs the logits,
    which the fused training loss never forms: validation counts it, training does not.
    """
    outputs = list(logging_outputs)
    sample_size = sum(output.get("sample_size", 0) for output in outputs)
    if sample_size == 0:  # no position of these batches was predicted: there is nothing to average
        return
    loss = sum(output.get("loss", 0) for output in outputs)
    metrics.log_scalar("loss", loss / sample_size / math.log(2), sample_size, round=3)
    metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
    num_positions = sum(output.get("npositions", 0) for output in outputs)
    if num_positions > 0:
        num_tokens = sum(output.get("ntokens", 0) for output in outputs)
        metrics.log_scalar("padding", 100.0 * (1 - num_tokens / num_positions), num_positions, round=2)
    num_counted = sum(output.get("num_counted", 0) for output in outputs)
    if num_counted > 0:
        num_correct = sum(output.get("num_correct", 0) for output in outputs)
        metrics.log_scalar("accuracy", 100.0 * num_correct / num_counted, num_counted, round=2)
