"""The criterion of fine-tuning: the loss of the task's kind, and in a validation its metrics.

There is one class, registered with fairseq by each name of `registry.TRAININGS`; the loss is `KindTraining.loss`.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, ClassVar

from torch import Tensor

from roberta_plugin.criterions.base import NUMBER, SUM, SummedCriterion, Validation, log_finetuning_loss
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.training import find_training
from roberta_plugin.registry import KINDS

_MOST_SHOWN = 8  # labels in a message


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

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """Also refuse to choose checkpoints by a metric of the whole split if validations stop before its end."""
        super().check_options(cfg)
        chosen, steps = getattr(cfg, "best_checkpoint_metric", "loss"), getattr(cfg, "max_valid_steps", None)
        validates = getattr(cfg, "disable_validation", False) is not True
        if validates and isinstance(steps, int) and chosen not in ("loss", *_all_means()):
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
        names = [item.name for item in fields(cls.config) if item.name != "_name" and hasattr(cfg, item.name)]
        return cls(task, **{name: getattr(cfg, name) for name in names})

    def train(self, mode: bool = True) -> "FineTuningCriterion":
        """Training forgets the last validation, also one that saw only a part of its split: the next begins afresh."""
        if mode:
            self._validations, self._validation = {}, None
        super().train(mode)
        return self

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int | Tensor, dict[str, Any]]:
        """Return (summed loss, sample size, sums to log); in a validation, keep the outputs for `log_validation`.

        The model, ours or fairseq's, has the task's head, and may be wrapped for data-parallel training.
        """
        self.check_reduction(reduce)
        outputs = self.task.outputs(model, sample)
        loss = self.task.training.loss(self, outputs, sample)
        log = {key: sample[key] for key in ("ntokens", "nsentences", "npositions")}
        log |= {"loss": loss.total.detach(), "sample_size": loss.sample_size}
        means = dict(loss.means)
        if not model.training:
            self._validate(sample, outputs)
            means = {name: value for name, value in means.items() if name not in self.task.kind.metrics()}
        for name, (total, number) in means.items():
            log |= {f"{SUM}{name}": total.detach(), f"{NUMBER}{name}": number}
        return loss.total, loss.sample_size, log

    @property
    def _judging(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self.task.training.judging(self.options)
        return options

    def _validate(self, sample: dict[str, Any], outputs: Any) -> None:
        split = sample["split"]
        if split not in self._validations:
            self._validations[split] = Validation(self.task.kind, self.task.prepared.split(split), self._judging)
        self._validation = self._validations[split]
        self._validation.add(sample, outputs)

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss, padding and the further figures of `Loss.means`."""
        log_finetuning_loss(logging_outputs)

    def log_validation(self) -> None:
        """Log the metrics of the validation that is under way; in training there is none."""
        if self._validation is not None:
            self._validation.log(self.chosen)


def check_metric(kind: Kind, chosen: str) -> None:
    """Refuse to choose checkpoints by what no validation of the kind logs; fairseq would fail after an epoch."""
    labels = list(kind.label_metrics())
    logged = ["loss", *find_training(type(kind)).means, *kind.metrics(), *kind.also_logged]
    is_unread = chosen.startswith("${")  # the mark of such an option
    if not is_unread and chosen not in logged and kind.metric_named(chosen) not in (*logged, *labels):
        choices = ", ".join([*logged, *labels[:_MOST_SHOWN]])
        raise ValueError(f"--best-checkpoint-metric {chosen} is not logged by validations: choose by {choices}.")


def _all_means() -> set[str]:
    """Figures of the log beside the loss that a part of a split has, too."""
    return {name for kind, entry in KINDS.items() if entry.training for name in KINDS.load(kind, "training").means}
