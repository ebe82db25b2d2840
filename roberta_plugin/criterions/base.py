"""What criterions share; and fine-tuning: the loss of the task's kind, and in a validation the kind's metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import chain
from typing import Any, ClassVar

from fairseq.criterions import FairseqCriterion
from torch import Tensor

from roberta_plugin.criterions import losses, metrics
from roberta_plugin.criterions.embedding import embedding
from roberta_plugin.criterions.losses import Loss, LossOfKind
from roberta_plugin.criterions.validation import Validation
from roberta_plugin.fairseq_import import OwnGroup
from roberta_plugin.kinds.base import Kind

LOSSES: Mapping[str, LossOfKind] = {
    "classification": losses.classification,
    "multi_label": losses.multi_label,
    "regression": losses.regression,
    "pair_ranking": losses.pair_ranking,
    "phrase_ranking": losses.phrase_ranking,
    "multiple_choice": losses.multiple_choice,
    "tagging": losses.tagging,
    "question_answering": losses.question_answering,
    "summary": losses.summary,
    "embedding": embedding,
}
"""By the name of the kind."""
_MOST_SHOWN = 8  # labels in a message


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
    """The criterion of a fine-tuning task: a loss, and in a validation the metrics of the task's kind."""

    config: ClassVar[Any]
    """The dataclass of its options."""

    def __init__(self, task: Any, **options: Any) -> None:
        """Make the criterion of a task.

        Raises:
            ValueError: if the task's kind has no labels to smooth.
        """
        super().__init__(task)
        defaults = {item.name: item.default for item in fields(self.config) if item.name != "_name"}
        assert options.keys() <= defaults.keys(), f"{self.name} has no such options: {options}"
        self.task, self.options = task, {**defaults, **options}
        self.label_smoothing = self.options.get("label_smoothing", 0.0)
        self.chosen = self.options.get("best_checkpoint_metric", "loss")
        self._validations: dict[str, Validation] = {}
        self._validation: Validation | None = None
        self._weights: Tensor | None = None
        if self.label_smoothing:
            task.kind.check_smoothing()

    def label_weights(self, logits: Tensor) -> Tensor | None:
        """How much each label counts (C,), if not all the same; copied to the device once: a copy waits for it."""
        weights = self.task.kind.settings.get("weights")
        if weights is None:
            return None
        if self._weights is None or self._weights.device != logits.device:
            self._weights = logits.new_tensor(weights)
        return self._weights

    @property
    def smoothing(self) -> float:
        """The share of the target that is spread over all labels: in training alone."""
        return self.label_smoothing if self.training else 0.0

    @property
    def judging(self) -> Mapping[str, Any]:
        """Options by which a validation is judged; see `Kind.validated`."""
        return self.options

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """See `OwnGroup.check_options`: a metric of a whole split is NaN, and keeps none, if validations see a part."""
        super().check_options(cfg)
        chosen, steps = getattr(cfg, "best_checkpoint_metric", "loss"), getattr(cfg, "max_valid_steps", None)
        if isinstance(steps, int) and chosen not in ("loss", *chain(*losses.MEANS.values())):
            raise ValueError(
                f"--best-checkpoint-metric {chosen} is measured on a whole split, but --max-valid-steps {steps} stops "
                "validations before: leave it out, or choose by the loss."
            )

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
        check_metric(task.kind, getattr(cfg, "best_checkpoint_metric", "loss"))
        given = [item.name for item in fields(cls.config) if item.name != "_name" and hasattr(cfg, item.name)]
        return cls(task, **{name: getattr(cfg, name) for name in given})

    def train(self, mode: bool = True) -> FineTuningCriterion:
        """To train is to begin another validation afterwards, also where the last one saw only a part of its split."""
        if mode:
            self._validations, self._validation = {}, None
        super().train(mode)
        return self

    def loss(self, outputs: Any, sample: Mapping[str, Any]) -> Loss:
        """The loss of a batch of the task from the outputs of its head (`FineTuningTask.outputs`)."""
        return LOSSES[self.task.kind.name](self, outputs, sample)

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


def check_metric(kind: Kind, chosen: str) -> None:
    """Refuse to choose checkpoints by what no validation of the kind logs; fairseq would fail after an epoch."""
    of_labels = list(kind.label_metrics())
    logged = ["loss", *losses.MEANS.get(kind.name, ()), *kind.metrics(), *kind.also_logged]
    if chosen not in (*logged, *of_labels) and not chosen.startswith("${"):  # the mark of an option that is not read
        named = ", ".join([*logged, *of_labels[:_MOST_SHOWN]])
        raise ValueError(f"--best-checkpoint-metric {chosen} is not logged by validations: choose by {named}.")
