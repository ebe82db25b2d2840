"""The loss of sentences of a summary (Liu and Lapata 2019, section 3.2), and the segments of its model.

Shapes: V sentences of the documents of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.checkpoint_files import check_checkpoint
from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss


class SummaryTraining(KindTraining):
    """Scores each sentence of a document."""

    dataset_class = inputs_class = DocumentsDataset

    @property
    @override
    def head_sizes(self) -> dict[str, int]:
        return {"num_layers": self.cfg.sentence_layers}

    @override
    def segments_of_start(self, number: int, start: Path | None) -> int:
        if not self.cfg.alternating_segments:  # all sentences are in the first segment
            return 0
        if start and not number:
            check_checkpoint(start)  # a damaged file may have lost them
            raise ValueError(
                f"--alternating-segments: {start} has no segment embeddings. Only models pretrained on pairs of "
                "texts have them, not RoBERTa. Leave the option out."
            )
        return number or 2

    @override
    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Any:
        head = self.cfg.classification_head_name
        return model(**sample["net_input"], head=head, predicted=sample["sentences"])[0]

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Binary cross-entropy of logits (V,)."""
        logits, labels = outputs.float(), sample["sentences"]["labels"]
        loss = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
        num_correct = (logits.detach() > 0).eq(labels.bool()).sum()
        return Loss(loss, len(labels), {"accuracy": (100.0 * num_correct, len(labels))})

    @override
    def judging(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        name = "length_share" if options["length_share"] else "num_sentences"
        return {name: options[name]}
