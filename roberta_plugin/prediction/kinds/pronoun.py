"""A sentence with a pronoun in brackets -> the phrase that it stands for, or true or false for the marked one.

Example: {"text": "The trophy would not fit in the suitcase because [it] was too big."} -> {"answer": "The trophy",
"scores": {"The trophy": -1.2, ...}}; with "The _trophy_ would ...", the answer is true or false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roberta_plugin.hub import RobertaHub, pronouns
from roberta_plugin.prediction.kinds.base import Answer, Kind, text_of
from roberta_plugin.prediction.settings import PredictSettings


class Pronoun(Kind):
    """Scores of phrases by the masked-LM head."""

    name = "pronoun"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        hub.check_masked_lm()

    def read(self, record: Mapping[str, Any]) -> pronouns.PronounQuestion:
        """See `Kind.read`."""
        candidates = record.get("candidates")
        if candidates is not None and not (
            isinstance(candidates, list) and all(isinstance(each, str) for each in candidates)
        ):
            raise ValueError("the field 'candidates' must be a list of texts. Correct it, or leave it out.")
        return pronouns.read_question(text_of(record, "text"), candidates)

    def answer(self, questions: Sequence[pronouns.PronounQuestion]) -> list[Answer]:
        """See `Kind.answer`; a sentence that is too long loses tokens at both ends."""
        inputs = [
            pronouns.question_inputs(each, self.hub.codec.encoder, max_length=self.max_length) for each in questions
        ]
        sequences = [sequence for each in inputs for sequence in each.sequences]
        spans = [span for each in inputs for span in pronouns.masked_positions(each)]
        scores = iter(self.hub.score_spans(sequences, spans, max_tokens=self.settings.batch_tokens))
        answers: list[Answer] = []
        for question in questions:
            found = [next(scores) for _ in question.phrases]
            named = {phrase: round(score, 6) for phrase, score in zip(question.phrases, found, strict=True)}
            answers.append({"answer": pronouns.answer(question, np.array(found)), "scores": named})
        return answers
