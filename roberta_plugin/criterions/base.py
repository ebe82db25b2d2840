"""What criterions share; each of fine-tuning reads the batches and outputs of one task, the task of its name."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II
from torch import Tensor

from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.settings import setting


@dataclass
class LabelsConfig(FairseqDataclass):
    """Options of criterions of labels."""

    label_smoothing: float = setting(
        0.0,
        "share of the target that is spread evenly over all labels, in training; the loss of a validation is without",
        smallest=0,
        largest=1,
    )
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")


class SummedCriterion(OwnGroup, FairseqCriterion):  # type: ignore[misc]
    """A summed loss; fairseq divides it by the sum of the sample sizes of all batches and ranks of an update."""

    name: ClassVar[str]
    """Under which it is registered; also that of its task."""

    def check_reduction(self, reduce: bool) -> None:
        """Refuse to return the loss of each sample."""
        if not reduce:
            raise ValueError(f"The criterion {self.name} returns the summed loss only: call it with reduce=True.")

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Every logged value is a sum, so fairseq may add them across ranks before reducing."""
        return True


class FineTuningCriterion(SummedCriterion):
    """The criterion of a fine-tuning task."""

    def __init__(self, task: Any, label_smoothing: float = 0.0, best_checkpoint_metric: str = "loss") -> None:
        """Make the criterion of a task.

        Raises:
            ValueError: if the task's kind has no labels to smooth.
        """
        super().__init__(task)
        self.task, self.label_smoothing, self.chosen = task, label_smoothing, best_checkpoint_metric
        if label_smoothing:
            task.kind.check_smoothing()

    @property
    def smoothing(self) -> float:
        """The share of the target that is spread over all labels: in training alone."""
        return self.label_smoothing if self.training else 0.0

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        """Build it for the task of its name, and refuse others; its options are checked."""
        name = getattr(task, "name", None) or getattr(task.cfg, "_name", None) or type(task).__name__
        if name != cls.name:
            raise ValueError(
                f"--criterion {cls.name} goes with --task {cls.name} and a folder of `roberta prepare`, not with "
                f"--task {name}."
            )
        cls.check_options(cfg)
        return super().build_criterion(cfg, task)

    def log_chosen(self, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """Log the metric that chooses checkpoints, `self.chosen`, if `reduce_metrics` does not."""

    @abstractmethod
    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[Tensor, int | Tensor, dict[str, Any]]:
        """The summed loss of a batch of the task, its sample size, and sums to log, more of them in validation.

        The model, ours or fairseq's, has the task's head, and may be wrapped for data-parallel training.
        """

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int | Tensor, dict[str, Any]]:
        """Return (summed loss, sample size, sums to log)."""
        self.check_reduction(reduce)
        loss, sample_size, sums = self.loss(model, sample)
        log = {key: sample[key] for key in ("ntokens", "nsentences", "npositions")}
        return loss, sample_size, {"loss": loss.detach(), "sample_size": sample_size, **log, **sums}


def by_example(logits: Tensor, first: Tensor) -> Tensor:
    """Logits (S,) of competing sequences, of which example b has those from first[b] to first[b + 1] -> (B, O).

    O = S - B + 1 bounds the number of sequences of an example, and is known without a device-to-host sync.

    Example: by_example([a, b, c, d, e], [0, 3, 5])  ->  [[a, b, c, -inf], [d, e, -inf, -inf]]
    """
    num_sequences, num_examples = len(logits), len(first) - 1
    rows = torch.arange(num_examples, device=logits.device)
    example = rows.repeat_interleave(first.diff(), output_size=num_sequences)  # (S,)
    place = torch.arange(num_sequences, device=logits.device) - first[example]  # (S,), within the example
    choices = logits.new_full((num_examples, num_sequences - num_examples + 1), -torch.inf)
    return choices.index_put((example, place), logits)
