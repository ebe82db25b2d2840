"""Extractive summaries: which sentences of a document to keep.

The steps from raw files to batches are drawn in `roberta_plugin/finetuning/summaries/__init__.py`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from fairseq.tasks import register_task
from omegaconf import II

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.finetuning.summaries.dataset import DocumentsDataset
from roberta_plugin.kinds.documents import Documents, check_rouge
from roberta_plugin.models.checkpoints.fitting import SEGMENTS
from roberta_plugin.tasks.finetuning import FineTuningTask
from roberta_plugin.tasks.finetuning_options import FineTuningConfig

SENTENCE_LAYERS = 2  # Liu and Lapata 2019, section 3.2: the best of 1, 2 and 3


@dataclass
class SummarizationConfig(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = field(
        default="summary_head", metadata={"help": "name of the new head in the checkpoint"}
    )
    sentence_layers: int = field(
        default=SENTENCE_LAYERS,
        metadata={"help": "layers of a Transformer over the sentences of a document, before the linear classifier"},
    )
    alternating_segments: bool = field(
        default=False,
        metadata={
            "help": "give the sentences segments 0 and 1 in turn, as BertSum does; for a model with segment embeddings"
        },
    )
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


@register_task("roberta_summarization", dataclass=SummarizationConfig)
class SummarizationTask(FineTuningTask):
    """Scores each sentence of a document."""

    cfg: SummarizationConfig
    name = "roberta_summarization"
    dataset_class = inputs_class = DocumentsDataset

    def __init__(self, cfg: SummarizationConfig, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        if cfg.sentence_layers < 0:
            raise ValueError(
                f"--sentence-layers must be a number of layers, or 0 for the linear classifier alone, got "
                f"{cfg.sentence_layers}."
            )
        self.num_segments = 2 if cfg.alternating_segments else 0  # of the model

    @property
    def head_sizes(self) -> dict[str, int]:
        """See `FineTuningTask.head_sizes`."""
        return {"num_layers": self.cfg.sentence_layers}

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model with its head.

        Raises:
            ValueError: if the model cannot have one, or has no segments to alternate.
        """
        start = self.cfg.finetune_from_model
        is_new = self.cfg.alternating_segments and not from_checkpoint
        if is_new and start and Path(start).is_file() and SEGMENTS not in load_state(Path(start))["model"]:
            raise ValueError(
                f"--alternating-segments: {start} has no segment embeddings, which only models pretrained with "
                "--input-format segment-pair or sentence-pair have; RoBERTa has none. Leave the option out."
            )
        return super().build_model(cfg, from_checkpoint)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Any:
        """Logits of the sentences of a batch (V,)."""
        head = self.cfg.classification_head_name
        return model(**sample["net_input"], head=head, predicted=sample["sentences"])[0]

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Open a split of the prepared folder, whose summaries must be known.

        Raises:
            ValueError: if they are not, as in a test file.
        """
        is_labelled = self.prepared.split(split).columns["is_labelled"].all()
        self.check_labelled(split, lacks="" if is_labelled else "has documents without a summary")
        if split != "train":
            check_rouge()
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)

    def documents(self, split: str) -> Documents:
        """The documents of a split that was loaded."""
        found: Documents = self.dataset(split).documents
        return found
