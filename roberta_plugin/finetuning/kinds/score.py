"""A text -> how acceptable it is to a masked LM, by one of the methods of `roberta_plugin/hub/scoring.py`.

Example: {"text": "The cats sleep."} -> {"score": -9.81, "num_tokens": 4}, and with --per-token also "tokens" and their
"log_probs"; the sum or mean of these is the score, in nats, and higher is more acceptable.
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.finetuning.kinds.base import Answer, Kind, rounded
from roberta_plugin.finetuning.records import text_of
from roberta_plugin.tables import Row, short


class TextScore(Kind):
    """The masked-LM head at every token."""

    name = "score"
    description = "scores how acceptable a text is"
    head = "masked_lm"
    default_head_name = "masked_lm"
    task = "roberta_masked_lm"

    def read_question(self, row: Row) -> str:
        """See `Kind.read_question`."""
        text = text_of(row, self.names_of(0), option="--text-column")
        if MASK in text:
            raise ValueError(f"{row.where}: the text {short(text)} has a {MASK}. Give whole sentences to score.")
        return text

    def answer(self, questions: Sequence[str]) -> list[Answer]:
        """See `Kind.answer`; a text that is too long is refused, because a part of it has another score."""
        sequences = self.hub.codec.sequences(questions)
        fitting = [sequence for sequence in sequences if len(sequence) <= self.max_length]
        method, most = self.options.score or "pll", self.options.batch_tokens
        found = iter(self.hub.score_sequences(fitting, method, max_tokens=most))
        answers: list[Answer] = []
        for sequence in sequences:
            if len(sequence) > self.max_length:
                answers.append(
                    ValueError(f"the text has {len(sequence)} tokens, and {self.max_length} is the most. Shorten it.")
                )
                continue
            score, tokens, log_probs = next(found)
            per_token = {"tokens": tokens, "log_probs": [rounded(value) for value in log_probs]}
            answers.append(
                {"score": rounded(score), "num_tokens": len(tokens), **(per_token if self.options.per_token else {})}
            )
        return answers
