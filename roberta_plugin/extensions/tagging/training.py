"""The loss of tags, and batches with a label for each token.

Shapes: S sequences, T positions (or P of one packed row), C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.extensions.tagging.dataset import TaggingDataset
from roberta_plugin.extensions.tagging.layout import IGNORED
from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss


class TaggingTraining(KindTraining):
    """A tag for each word, at its first token."""

    dataset_class = TaggingDataset

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (S, T, C) at the tokens that have a label."""
        loss = F.cross_entropy(
            outputs.flatten(0, 1).float(),
            sample["token_labels"].flatten(),  # (S, T) -> (S * T,)
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=criterion.smoothing,
        )
        return Loss(loss, sample["num_labels"])
