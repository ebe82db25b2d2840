"""Batches of texts whose vectors are computed in parts of similar length.

Shapes: S sequences of a batch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.data.batches import cut_by_length
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset

ENOUGH = 512  # positions of a part after which shorter sequences begin another part; see `hub/running.py`


class EmbeddingDataset(ExamplesDataset):
    """Batches of `ExamplesDataset` with net_input["pooled"] = {"order" (S,), "parts"}: see `RobertaEncoder.vectors`.

    A part has at most `mini_batch_size` sequences.
    """

    mini_batch_size: int | None = None

    @override
    def make_batch(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> dict[str, Any]:
        batch = super().make_batch(passes, indices)
        lengths = batch["net_input"]["src_lengths"].tolist()
        cut = cut_by_length(lengths, max_tokens=sys.maxsize, enough=ENOUGH, max_sequences=self.mini_batch_size)
        groups = list(cut)
        stops = np.cumsum([len(group) for group in groups]).tolist()
        parts = tuple(
            (stop, lengths[group[0]], lengths[group[-1]] < lengths[group[0]])
            for stop, group in zip(stops, groups, strict=True)
        )
        batch["net_input"]["pooled"] = {"order": np.concatenate(groups), "parts": parts}
        return batch
