"""Tagging: a tag for each word, such as those of entities.

The steps from official files to batches are drawn in `roberta_plugin/finetuning/tagging/__init__.py`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass, field
from typing import Any

from fairseq.tasks import register_task

from roberta_plugin.finetuning.tagging.dataset import TaggingDataset
from roberta_plugin.kinds.entities import types_of
from roberta_plugin.kinds.tags import Sentences
from roberta_plugin.tasks.finetuning import FineTuningTask
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class RobertaTaggingConfig(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = field(
        default="token_head", metadata={"help": "name of the new head in the checkpoint"}
    )


@register_task("roberta_tagging", dataclass=RobertaTaggingConfig)
class RobertaTaggingTask(FineTuningTask):
    """Finds the tag of each word at its first token."""

    cfg: RobertaTaggingConfig
    name = "roberta_tagging"
    dataset_class = TaggingDataset

    def __init__(self, cfg: RobertaTaggingConfig, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        self._sentences: dict[str, Sentences] = {}

    @property
    def labels(self) -> list[str]:
        """Names of the labels, in their order."""
        return list(self.prepared.settings["labels"])

    @property
    def num_types(self) -> int:
        """Types of entities; 0 if the tags are plain."""
        return len(types_of(self.labels) or ())

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Open a split of the prepared folder, whose tags must be known.

        Raises:
            ValueError: if they are not, or are not those of prepared.json.
        """
        self.check_labelled(split, lacks="" if self.sentences(split).is_labelled else "has no tags")
        labels = self.prepared.split(split).array("token_labels")
        if len(labels) != self.prepared.split(split).sequences.num_tokens or labels.max(initial=0) >= len(self.labels):
            raise ValueError(
                f"{self.prepared.folder}: {split}.token_labels.npy does not fit the sequences or the labels: prepare "
                "again."
            )
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)

    def sentences(self, split: str) -> Sentences:
        """The words of a split, opened once."""
        if split not in self._sentences:
            self._sentences[split] = Sentences(self.prepared.split(split))
        return self._sentences[split]
