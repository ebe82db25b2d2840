"""A text or a pair -> a number; clipped to the limits of the task, if it is one of GLUE's.

Example: {"text": "A plane takes off.", "text_pair": "An air plane is taking off."} -> {"score": 4.9}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.kinds.base import Answer, Kind, Texts, marked, sequences_of, texts_of
from roberta_plugin.prediction.settings import PredictSettings


class Regression(Kind):
    """The one output of a head, as it is; a higher one of a ranking model means a better pair."""

    name = "regression"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = self.score_head()
        task = TASKS.get(str(hub.trained_on.get("task")))
        self.limits = task.limits if task is not None and task.kind == "regression" else None

    def read(self, record: Mapping[str, Any]) -> Texts:
        """See `Kind.read`."""
        return texts_of(record, self.hub)

    def answer(self, questions: Sequence[Texts]) -> list[Answer]:
        """See `Kind.answer`."""
        inputs = sequences_of(self.hub, questions, max_length=self.max_length)
        sequences = [sequence for sequence, _ in inputs]
        logits = self.hub.class_logits(sequences, self.head, max_tokens=self.settings.batch_tokens)
        answers: list[Answer] = []
        for (_, is_cut), value in zip(inputs, logits[:, 0].tolist(), strict=True):
            score = value if self.limits is None else min(max(value, self.limits[0]), self.limits[1])
            answers.append(marked({"score": round(score, 6)}, is_cut=is_cut))
        return answers
