"""A text or a pair -> a label.

Example: {"text": "A fine film."} -> {"label": "1", "probability": 0.98, "probabilities": {"0": 0.02, "1": 0.98}}
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.kinds.base import Answer, TextKind, Texts, marked
from roberta_plugin.prediction.settings import PredictSettings


class Classification(TextKind):
    """The classes of a classification head."""

    name = "classification"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = self.class_head()

    def answer(self, questions: Sequence[Texts]) -> list[Answer]:
        """See `Kind.answer`."""
        logits, were_cut = self.logits(questions)
        labels = self.labels(logits.size(1))
        answers: list[Answer] = []
        for row, is_cut in zip(logits.double().softmax(dim=-1).tolist(), were_cut, strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            probabilities = {label: round(value, 6) for label, value in zip(labels, row, strict=True)}
            content = {"label": labels[best], "probability": round(row[best], 6), "probabilities": probabilities}
            answers.append(marked(content, is_cut=is_cut))
        return answers

    def labels(self, num_classes: int) -> list[str]:
        """Names of the classes; their numbers if the checkpoint does not name them for this head."""
        names = self.hub.labels
        return names if len(names) == num_classes else [str(number) for number in range(num_classes)]
