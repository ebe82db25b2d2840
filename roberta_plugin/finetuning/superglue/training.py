"""The grid of a task: learning rates, batches and updates, in the form of `benchmarks.PaperRecipe`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.paper_settings import COMMON, WARM_UP


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a task is trained; the defaults are the paper's for GLUE (Table 10)."""

    lrs: tuple[str, ...] = ("1e-5", "2e-5", "3e-5")
    batches: tuple[int, ...] = (16, 32)
    """Examples of an update."""
    epochs: int = 10
    updates: int | None = None
    """Updates of a run, whatever the number of examples; None: `epochs` counts."""
    warm_up: float = WARM_UP
    """Share of the updates."""
    weight_decay: str = "0.1"
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of fairseq-train."""

    def recipe(
        self,
        fairseq_task: str,
        *,
        num_examples: int,
        selection: str,
        official: str,
        starts_from: str = "",
        epochs: int | None = None,
    ) -> PaperRecipe:
        """The grid for a number of training examples; `epochs` replaces epochs or updates.

        Example:
            Training(batches=(16,), updates=2000, warm_up=0.125) -> batch-size 16, max-update 2000, warmup-updates 250
        """
        return PaperRecipe(
            train={
                "task": fairseq_task,
                "criterion": fairseq_task,
                **COMMON,
                "weight-decay": self.weight_decay,
                **self.options,
            },
            axes={
                "lr": list(self.lrs),
                "batch": {str(size): self._schedule(num_examples, size, epochs) for size in self.batches},
            },
            seeds=["1", "2", "3", "4", "5"],
            metric={"log": "valid", "value": selection, "goal": "max", "at": "best"},
            official=official,
            starts_from=starts_from,
        )

    def _schedule(self, num_examples: int, batch_size: int, epochs: int | None) -> dict[str, str]:
        num_updates = self.updates
        if epochs is not None or num_updates is None:
            num_updates = (epochs or self.epochs) * math.ceil(num_examples / batch_size)
        return {
            "batch-size": str(batch_size),
            "total-num-update": str(num_updates),
            "max-update": str(num_updates),
            "warmup-updates": str(round(self.warm_up * num_updates)),
        }
