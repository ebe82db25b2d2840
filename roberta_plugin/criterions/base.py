"""What criterions share; each of fine-tuning reads the batches and outputs of one task, the task of its name."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from omegaconf import II
from torch import Tensor

from roberta_plugin.criterions import metrics
from roberta_plugin.criterions.validation import Validation
from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.settings import setting


@dataclass
class LabelsConfig(FairseqDataclass):
    """Options of criterions of labels."""

    label_smoothing: float = setting(
        0.0,
        "share of the target, from 0 to 1, that is spread evenly over all labels, in training; the loss of "
        "a validation is without",
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


class Loss(NamedTuple):
    """The loss of a batch."""

    total: Tensor
    """The sum () over what is learned."""
    sample_size: int | Tensor
    """What fairseq divides it by, with those of all batches and ranks of an update."""
    means: Mapping[str, tuple[Tensor, int | Tensor]] = MappingProxyType({})
    """Further figures of the log: sums, and what they are divided by."""


class FineTuningCriterion(SummedCriterion):
    """The criterion of a fine-tuning task: a loss, and in a validation the metrics of the task's kind."""

    def __init__(self, task: Any, label_smoothing: float = 0.0, best_checkpoint_metric: str = "loss") -> None:
        """Make the criterion of a task.

        Raises:
            ValueError: if `label_smoothing` is no share, or the task's kind has no labels to smooth.
        """
        super().__init__(task)
        self.task, self.label_smoothing, self.chosen = task, label_smoothing, best_checkpoint_metric
        self._validations: dict[str, Validation] = {}
        self._validation: Validation | None = None
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"--label-smoothing must be from 0 to 1, got {label_smoothing}.")
        if label_smoothing:
            task.kind.check_smoothing()

    @property
    def smoothing(self) -> float:
        """The share of the target that is spread over all labels: in training alone."""
        return self.label_smoothing if self.training else 0.0

    @property
    def judging(self) -> Mapping[str, Any]:
        """Options by which a validation is judged; see `Kind.validated`."""
        return {}

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        """Build it for the task of its name, and refuse others."""
        name = getattr(task, "name", None) or getattr(task.cfg, "_name", None) or type(task).__name__
        if name != cls.name:
            raise ValueError(
                f"--criterion {cls.name} goes with --task {cls.name} and a folder of `roberta prepare`, not with "
                f"--task {name}."
            )
        return super().build_criterion(cfg, task)

    def train(self, mode: bool = True) -> "FineTuningCriterion":
        """To train is to begin another validation afterwards, also where the last one saw only a part of its split."""
        if mode:
            self._validations, self._validation = {}, None
        super().train(mode)
        return self

    @abstractmethod
    def loss(self, outputs: Any, sample: dict[str, Any]) -> Loss:
        """The loss of a batch of the task from the outputs of its head (`FineTuningTask.outputs`)."""

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int | Tensor, dict[str, Any]]:
        """Return (summed loss, sample size, sums to log); in a validation, keep the outputs for `log_validation`.

        The model, ours or fairseq's, has the task's head, and may be wrapped for data-parallel training.
        """
        self.check_reduction(reduce)
        outputs = self.task.outputs(model, sample)
        found = self.loss(outputs, sample)
        log = {key: sample[key] for key in ("ntokens", "nsentences", "npositions")}
        log |= {"loss": found.total.detach(), "sample_size": found.sample_size}
        means = dict(found.means)
        if not model.training:
            self._validate(sample, outputs)
            means = {name: value for name, value in means.items() if name not in self.task.kind.metrics()}
        for name, (total, number) in means.items():
            log |= {f"{metrics.SUM}{name}": total.detach(), f"{metrics.NUMBER}{name}": number}
        return found.total, found.sample_size, log

    def _validate(self, sample: dict[str, Any], outputs: Any) -> None:
        split = sample["split"]
        if split not in self._validations:
            self._validations[split] = Validation(self.task.kind, self.task.prepared.split(split), self.judging)
        self._validation = self._validations[split]
        self._validation.add(sample, outputs)

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss, padding and the further figures of `Loss.means`."""
        metrics.log_finetuning_loss(logging_outputs)

    def log_validation(self) -> None:
        """Log the metrics of the validation that is under way; in training there is none."""
        if self._validation is not None:
            self._validation.log(self.chosen)


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
