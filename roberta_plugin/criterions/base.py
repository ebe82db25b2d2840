"""What the criterions of fine-tuning share: each reads the batches and outputs of one task, the task of its name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from fairseq.criterions import FairseqCriterion
from torch import Tensor

from roberta_plugin.fairseq_import import OwnGroup


class FineTuningCriterion(OwnGroup, FairseqCriterion):  # type: ignore[misc]
    """A summed loss; fairseq divides it by the sum of the sample sizes of all batches and ranks of an update."""

    name: ClassVar[str]
    """Under which it is registered; also that of its task."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.task = task

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        """Build it for the task of its name, and refuse others.

        Raises:
            ValueError: naming both.
        """
        name = getattr(task, "name", None) or getattr(task.cfg, "_name", None) or type(task).__name__
        if name != cls.name:
            raise ValueError(
                f"--criterion {cls.name} goes with --task {cls.name} and a folder of `roberta prepare`, not with "
                f"--task {name}."
            )
        return super().build_criterion(cfg, task)

    @abstractmethod
    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[Tensor, int | Tensor, dict[str, Any]]:
        """The summed loss of a batch, its sample size and sums to log, more of them in validation.

        Args:
            model: with the task's head, possibly wrapped for data-parallel training.
            sample: a batch of the task.
        """

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int | Tensor, dict[str, Any]]:
        """Return (summed loss, sample size, sums to log).

        Raises:
            ValueError: if `reduce` is False.
        """
        if not reduce:
            raise ValueError(f"The criterion {self.name} returns the summed loss only: call it with reduce=True.")
        loss, sample_size, sums = self.loss(model, sample)
        log = {key: sample[key] for key in ("ntokens", "nsentences", "npositions")}
        return loss, sample_size, {"loss": loss.detach(), "sample_size": sample_size, **log, **sums}

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Every logged value is a sum, so fairseq may add them across ranks before reducing."""
        return True
