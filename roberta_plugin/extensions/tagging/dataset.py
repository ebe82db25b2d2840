"""Batches of texts with a label for each token.

Shapes: S sequences of a batch, T positions; P positions of a packed row.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.extensions.tagging.layout import IGNORED
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset


class TaggingDataset(ExamplesDataset):
    """Batches of `ExamplesDataset` with further entries.

    "token_labels" is int64 in the shape of src_tokens, (S, T) or (1, P), and -100 where nothing is learned.
    "num_labels" is the number of all other entries.
    """

    @override
    def make_batch(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> dict[str, Any]:
        """The batch of some examples, each of which has one sequence."""
        batch = super().make_batch(passes, indices)
        tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
        starts = np.cumsum(lengths) - lengths if self.pack else np.arange(len(lengths)) * tokens.shape[1]
        labels = np.full(tokens.size, IGNORED, dtype=np.int64)
        for start, first, length in zip(
            starts.tolist(), self.split.sequences.starts[indices].tolist(), lengths.tolist(), strict=True
        ):
            labels[start : start + length] = self._labels[first : first + length]
        batch["token_labels"] = labels.reshape(tokens.shape)
        batch["num_labels"] = int((labels != IGNORED).sum())
        return batch

    @cached_property
    def _labels(self) -> NDArray[np.int16]:
        """Labels of all tokens of the split."""
        return self.split.array("token_labels")
