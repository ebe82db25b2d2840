"""Multiple choice: RACE, and other sets with any number of options.

The steps from official files to batches are drawn in `roberta_plugin/finetuning/race/__init__.py`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from roberta_plugin.finetuning.race.degenerate_run import DEFAULT_PATIENCE, DegenerateRunWatch, Sums
from roberta_plugin.tasks.finetuning import FineTuningTask
from roberta_plugin.tasks.finetuning_options import FineTuningConfig

logger = logging.getLogger(__name__)

# Names in `Sums` -> keys in the criterion's log
_KEYS = {
    "questions": "num_counted",
    "loss": "loss",
    "chance_loss": "chance_loss",
    "correct": "num_correct",
    "chance_correct": "chance_correct",
    "chance_variance": "chance_variance",
}


@dataclass
class RaceConfig(FineTuningConfig):
    """Options of the multiple-choice task."""

    degenerate_patience: int = field(
        default=DEFAULT_PATIENCE,
        metadata={
            "help": "training updates in a row with loss and accuracy at chance after which the run is called "
            "degenerate; 0: never. A resumed run starts counting again"
        },
    )
    degenerate_action: ChoiceEnum(["warn", "stop"]) = field(  # type: ignore[valid-type]
        default="warn",
        metadata={"help": "what follows then: a warning in the log, or the end of the run with an error"},
    )


@register_task("race", dataclass=RaceConfig)
class RaceTask(FineTuningTask):
    """Scores each option of a question; the highest score is the answer."""

    cfg: RaceConfig
    name = "race"

    def __init__(self, cfg: RaceConfig, *arguments: Any) -> None:
        super().__init__(cfg, *arguments)
        self.watch = DegenerateRunWatch(cfg.degenerate_patience) if cfg.degenerate_patience else None

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """See `BlockTask`."""
        super().check_options(cfg)
        if cfg.degenerate_patience < 0:
            raise ValueError(
                f"--degenerate-patience must be a number of updates, or 0 to switch it off, got "
                f"{cfg.degenerate_patience}."
            )

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Open a split of the prepared folder, whose answers must be known.

        Raises:
            ValueError: if an answer is unknown, as in the test split of some sets.
        """
        labels = self.prepared.split(split).columns["label"]
        if (labels < 0).any():
            raise ValueError(
                f"{self.prepared.folder}: {int((labels < 0).sum()):,} of {len(labels):,} questions of the split "
                f"{split!r} have no answer, so there is no loss: `roberta evaluate` writes predictions for them."
            )
        super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)

    def reduce_metrics(self, logging_outputs: Iterable[Mapping[str, Any]], criterion: Any) -> None:
        """Log what the criterion logs, and watch for a degenerate run, once an update.

        Raises:
            RuntimeError: if the run is degenerate and --degenerate-action is stop.
        """
        outputs = list(logging_outputs)
        super().reduce_metrics(outputs, criterion)
        if self.watch is None or not any("chance_loss" in output for output in outputs):
            return  # validation has no chance_loss
        message = self.watch.see(
            Sums(**{name: float(sum(output.get(key, 0) for output in outputs)) for name, key in _KEYS.items()})
        )
        if message is None:
            return
        if self.cfg.degenerate_action == "stop":
            raise RuntimeError(message)
        logger.warning(message)
