"""The outputs of a validation, from batches in any order on any number of ranks -> the metrics of `roberta evaluate`.

Every rank gets the outputs of all ranks, and judges them at the end (`Kind.validated`).

Shapes: B examples of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics as fairseq_metrics
from torch import Tensor

from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.base import Kind
from roberta_plugin.kinds.outputs import Collected


class Validation:
    """A validation on one split."""

    def __init__(self, kind: Kind, split: PreparedSplit, options: Mapping[str, Any]) -> None:
        """`options` are those of the criterion, by which some kinds decide."""
        self._kind, self._split, self._options = kind, split, options
        pools_windows = kind.window_pooling is not None
        self._collected = Collected(split, kind.validated_outputs or kind.outputs, pools_windows=pools_windows)
        self._found: Mapping[str, float] = {}
        self._is_over = False

    def add(self, batch: Mapping[str, Any], outputs: Any) -> None:
        """Keep the outputs of a batch, and of the batches that the other ranks have at the same time.

        Some come twice: where one rank has fewer batches than another, it repeats one. With the last example all ranks
        have the metrics, and forget the outputs: fairseq keeps meters until the training ends.
        """
        if self._is_over:
            return
        part = self._collected.part(batch, self._kind.reduced(outputs))
        for each in [part] if ranks()[0] == 1 else _of_all_ranks(part, batch["id"].device):
            self._collected.put(each)
        if self._collected.is_complete:
            self._is_over = True
            if not self._collected.has_nan:  # the model has not diverged
                self._found = self._kind.validated(self._split, self._collected.outputs(), self._options)
            del self._collected

    def log(self, chosen: str) -> None:
        """Log the metrics of the kind; the F1 of a single label only if checkpoints are `chosen` by it.

        They are derived meters, because fairseq leaves these out of checkpoints.
        """
        of_label = [chosen] if chosen in self._kind.label_metrics() else []
        for name in (*self._kind.metrics(), *self._kind.also_logged, *of_label):
            fairseq_metrics.log_derived(name, partial(self._metric, name))

    def _metric(self, name: str, _meters: Any) -> float:
        """A metric; NaN until all examples are there."""
        return self._found.get(name, math.nan)


def ranks() -> tuple[int, int]:
    """The number of data-parallel ranks, and which one this is."""
    size = distributed.get_data_parallel_world_size()
    return (size, distributed.get_data_parallel_rank()) if size > 1 else (1, 0)


def gathered(values: Tensor) -> list[Tensor]:
    """The values (B, ...) of each rank, whose B may differ, without gradients."""
    group = distributed.get_data_parallel_group()
    own = torch.tensor([len(values)], device=values.device)
    sizes = [torch.empty_like(own) for _ in range(ranks()[0])]
    torch.distributed.all_gather(sizes, own, group=group)
    counts = [int(size) for size in torch.cat(sizes).tolist()]
    padded = values.new_zeros(max(counts), *values.shape[1:])
    padded[: len(values)] = values
    found = [torch.empty_like(padded) for _ in counts]
    torch.distributed.all_gather(found, padded, group=group)
    return [each[:count] for each, count in zip(found, counts, strict=True)]


def _of_all_ranks(part: Mapping[str, Any], device: torch.device) -> list[dict[str, Any]]:
    """The arrays of each rank, by name."""
    of_ranks = [
        [each.cpu().numpy() for each in gathered(torch.from_numpy(np.ascontiguousarray(values)).to(device))]
        for values in part.values()
    ]
    return [dict(zip(part, arrays, strict=True)) for arrays in zip(*of_ranks, strict=True)]
