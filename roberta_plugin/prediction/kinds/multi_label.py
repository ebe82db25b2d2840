"""A text or a pair -> any number of labels: those whose probability reaches a threshold.

The threshold is --threshold, or that of the development set if the model is the output folder of `roberta finetune`, or
0.5.

Example: {"text": "A witty thriller."} -> {"labels": ["comedy", "thriller"], "probabilities": {"comedy": 0.8, ...}}
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.kinds.base import Answer, TextKind, Texts, marked
from roberta_plugin.prediction.settings import PredictSettings


class MultiLabel(TextKind):
    """The labels of a head, each independent of the others."""

    name = "multi_label"
    threshold = "threshold"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = self.class_head()
        number = hub.num_classes(self.head)
        self.labels = hub.labels if len(hub.labels) == number else [str(label) for label in range(number)]
        self.limit = self.chosen_threshold()

    def answer(self, questions: Sequence[Texts]) -> list[Answer]:
        """See `Kind.answer`."""
        logits, were_cut = self.logits(questions)
        answers: list[Answer] = []
        for row, is_cut in zip(logits.double().sigmoid().tolist(), were_cut, strict=True):
            probabilities = {label: round(value, 6) for label, value in zip(self.labels, row, strict=True)}
            chosen = [label for label, value in zip(self.labels, row, strict=True) if value >= self.limit]
            answers.append(marked({"labels": chosen, "probabilities": probabilities}, is_cut=is_cut))
        return answers
