"""SQuAD 1.1 and 2.0, and own data: answers that are spans of a passage, and questions that have none.

The steps from official files to batches are drawn in `roberta_plugin/finetuning/squad/__init__.py`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass, field
from typing import Any

from fairseq.tasks import register_task

from roberta_plugin.kinds.questions import Questions
from roberta_plugin.tasks.finetuning import FineTuningTask
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class Squad2Config(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = field(
        default="span_head", metadata={"help": "name of the new head in the checkpoint"}
    )


@register_task("squad2", dataclass=Squad2Config)
class Squad2Task(FineTuningTask):
    """Finds where the answer begins and ends in each window, and whether it is there."""

    cfg: Squad2Config
    name = "squad2"
    can_pack = False

    def __init__(self, cfg: Squad2Config, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        self._questions: dict[str, Questions] = {}

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Open a split of the prepared folder, whose answers must be known.

        Raises:
            ValueError: if they are not, as in a test file.
        """
        is_labelled = self.questions(split).is_labelled
        self.check_labelled(split, lacks="" if is_labelled else "has questions without `answers`")
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)

    def questions(self, split: str) -> Questions:
        """The questions of a split, read once."""
        if split not in self._questions:
            rules = self.prepared.task if self.prepared.task in ("squad1", "squad2") else "squad2"  # for own data
            self._questions[split] = Questions(self.prepared.split(split), rules)
        return self._questions[split]
