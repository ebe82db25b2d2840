"""The scores of a kind, those that can choose checkpoints, and their names (`score_names.py`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from roberta_plugin.finetuning.kinds.metrics import OF_SCORES
from roberta_plugin.finetuning.kinds.score_names import BEST, current_name, of_label, tuned, untuned


class ScoredKind:
    """The part of a kind that names its scores."""

    also_logged: ClassVar[tuple[str, ...]] = ()
    """Scores that a validation logs besides `metrics`."""
    unreported: ClassVar[tuple[str, ...]] = ()
    """Metrics that reports on tables of your own leave out, unless a checkpoint was chosen by them."""
    of_all_labels: ClassVar[tuple[str, ...]] = ("macro_f1", "mcc", *OF_SCORES)
    """Metrics that need examples of every label, however rare it is."""

    def metrics(self) -> tuple[str, ...]:
        """Metrics by which checkpoints can be chosen instead of the loss; a validation logs them."""
        return ("accuracy",)

    def selectable(self) -> tuple[str, ...]:
        """All metrics by which checkpoints can be chosen, the loss among them."""
        return (*self.metrics(), "loss")

    def label_metrics(self) -> dict[str, int]:
        """The F1 of each label or type of entities -> its number; a validation logs the one that chooses."""
        return {}

    def metric_named(self, name: str) -> str:
        """The metric of a validation that a user, or an earlier version, calls `name`; `name` if there is none.

        Example: "exact" -> "exact_match"; for several labels "f1_spam" -> "tuned_f1_spam".
        """
        names = (*self.selectable(), *self.also_logged, *self.label_metrics())
        wanted = (name, current_name(name), tuned(name))
        return next((each for each in wanted if each in names), name)

    def words_on_scores(self, scores: Collection[str]) -> str:
        """A remark of a report on these scores, such as the label they are for; empty: none."""
        return ""

    def labels_needed(self, metric: str, labels: Sequence[str]) -> list[str]:
        """The labels among `labels` that a metric of a validation needs examples of."""
        if metric in OF_SCORES:
            return list(labels)
        return [label for label in labels if untuned(metric) == of_label("f1", label)]

    @property
    def selection(self) -> str:
        """The metric of fairseq's log that selects the checkpoint and the cell of the grid."""
        return "accuracy"

    def at_threshold(self, name: str) -> str:
        """The name of a score where a threshold has decided: another number than by the most probable labels."""
        return name if name in OF_SCORES or name.startswith(BEST) else tuned(name)
