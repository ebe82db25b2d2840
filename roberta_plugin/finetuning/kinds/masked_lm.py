"""What the masked-LM head answers by itself: tokens for each `<mask>` of a text, and how acceptable a text is.

Example of fill_mask: {"text": "The cat <mask> on it."} -> {"masks": [[{"token": " sat", "probability": 0.7, "text":
"The cat sat on it."}, ...]]}

A score is that of one of the methods of `roberta_plugin/hub/scoring.py`.

Example of score: {"text": "The cats sleep."} -> {"score": -9.81, "num_tokens": 4}, and with --per-token also "tokens"
and their "log_probs"; the sum or mean of these is the score, in nats, and higher is more acceptable.
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.finetuning.kinds.base import Answer, HuggingFace, Kind, rounded
from roberta_plugin.finetuning.records import text_of
from roberta_plugin.tables import Row, short


class FillMask(Kind):
    """The masked-LM head at the masks."""

    name = "fill_mask"
    description = "fills `<mask>` in a text"
    head = "masked_lm"
    white_space = "kept"
    default_head_name = "masked_lm"
    task = "roberta_masked_lm"
    hugging_face = HuggingFace(
        suffix="ForMaskedLM",
        names={"dense": "lm_head.dense", "layer_norm": "lm_head.layer_norm", "": "lm_head.decoder"},
        pipeline="fill-mask",
        num_outputs=0,
    )

    def read_question(self, row: Row) -> str:
        """See `Kind.read_question`."""
        text = text_of(row, self.names_of(0), option="--text-column", white_space="kept")
        if MASK not in text:
            raise ValueError(
                f"{row.where}: the text {short(text)} has no {MASK}. Put one where a token is to be found."
            )
        return text

    def answer(self, questions: Sequence[str]) -> list[Answer]:
        """See `Kind.answer`; a text that is too long is refused, because its masks might be cut off."""
        codec = self.hub.codec
        sequences = codec.sequences(questions)
        fitting = [sequence for sequence in sequences if len(sequence) <= self.max_length]
        found = iter(self.hub.fill_sequences(fitting, topk=self.options.top_k, max_tokens=self.options.batch_tokens))
        answers: list[Answer] = []
        for text, sequence in zip(questions, sequences, strict=True):
            if len(sequence) > self.max_length:
                answers.append(
                    ValueError(f"the text has {len(sequence)} tokens, and {self.max_length} is the most. Shorten it.")
                )
                continue
            fillings = [
                [codec.fill(text, which, token, probability) for probability, token in best]
                for which, best in enumerate(next(found))
            ]
            masks = [
                [{"token": each.token, "probability": rounded(each.probability), "text": each.text} for each in best]
                for best in fillings
            ]
            answers.append({"masks": masks})
        return answers


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
