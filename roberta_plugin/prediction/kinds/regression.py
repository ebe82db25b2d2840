"""A text or a pair -> a number; clipped to the limits of the task, if it is one of GLUE's.

Example: {"text": "A plane takes off.", "text_pair": "An air plane is taking off."} -> {"score": 4.9}
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.kinds.base import Answer, TextKind, Texts, marked
from roberta_plugin.prediction.settings import PredictSettings


class Regression(TextKind):
    """The one output of a head, as it is; a higher one of a ranking model means a better pair."""

    name = "regression"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = self.score_head()
        task = TASKS.get(str(hub.trained_on.get("task")))
        self.limits = task.limits if task is not None and task.kind == "regression" else None

    def answer(self, questions: Sequence[Texts]) -> list[Answer]:
        """See `Kind.answer`."""
        logits, were_cut = self.logits(questions)
        answers: list[Answer] = []
        for value, is_cut in zip(logits[:, 0].tolist(), were_cut, strict=True):
            score = value if self.limits is None else min(max(value, self.limits[0]), self.limits[1])
            answers.append(marked({"score": round(score, 6)}, is_cut=is_cut))
        return answers
