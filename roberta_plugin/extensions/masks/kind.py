"""Answers of the masked-LM head itself: tokens for each `<mask>` of a text, and how acceptable a text is.

Example of fill_mask: {"text": "The cat <mask> on it."} -> {"masks": [[{"token": " sat", "probability": 0.7, "text":
"The cat sat on it."}, ...]]}

A score is computed by one of the methods of `roberta_plugin/hub/scoring.py`.

Example of score: {"text": "The cats sleep."} -> {"score": -9.81, "num_tokens": 4}, and with --per-token also "tokens"
and their "log_probs". The score is their sum or mean, in nats; a higher score is more acceptable.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.finetuning.kinds.answering import Answer
from roberta_plugin.finetuning.kinds.base import rounded
from roberta_plugin.finetuning.kinds.lm_head import MaskedLmHead
from roberta_plugin.finetuning.records import text_of
from roberta_plugin.tables import Row, short


class _WholeText(MaskedLmHead):
    """Kinds of the masked-LM head. They refuse texts that are too long: a part has fewer masks, and another score."""

    @override
    def answer(self, questions: Sequence[str]) -> list[Answer]:
        sequences = self.hub.codec.sequences(questions)
        most = self.options.max_length or self.hub.longest
        fits = [len(sequence) <= most for sequence in sequences]
        answers = self.answer_sequences(
            [text for text, is_whole in zip(questions, fits, strict=True) if is_whole],
            [sequence for sequence, is_whole in zip(sequences, fits, strict=True) if is_whole],
        )
        return [
            next(answers)
            if is_whole
            else ValueError(f"the text has {len(sequence)} tokens, and {most} is the most. Shorten it.")
            for sequence, is_whole in zip(sequences, fits, strict=True)
        ]

    @abstractmethod
    def answer_sequences(self, texts: Sequence[str], sequences: Sequence[NDArray[np.int32]]) -> Iterator[Answer]:
        """The answers to texts, whose ids are the `sequences` (T,)."""


class FillMask(_WholeText):
    """The masked-LM head at the masks."""

    name = "fill_mask"

    @override
    def answer_sequences(self, texts: Sequence[str], sequences: Sequence[NDArray[np.int32]]) -> Iterator[Answer]:
        best = self.hub.fill_sequences(sequences, topk=self.options.top_k, max_tokens=self.options.batch_tokens)
        for text, of_masks in zip(texts, best, strict=True):
            fillings = [
                [self.hub.codec.fill(text, which, token, probability) for probability, token in tokens]
                for which, tokens in enumerate(of_masks)
            ]
            yield {
                "masks": [
                    [{"token": one.token, "probability": rounded(one.probability), "text": one.text} for one in each]
                    for each in fillings
                ]
            }


class TextScore(_WholeText):
    """The masked-LM head at every token."""

    name = "score"
    description = "scores how acceptable a text is"
    white_space = "stripped"
    hugging_face = None

    @override
    def read_question(self, row: Row) -> str:
        text = text_of(row, self.names_of(0), option="--text-column")
        if self.hub.codec.has_mask(text):
            raise ValueError(
                f"{row.where}: the text {short(text)} has a {self.hub.codec.mask_names}. Give whole sentences to score."
            )
        return text

    @override
    def answer_sequences(self, texts: Sequence[str], sequences: Sequence[NDArray[np.int32]]) -> Iterator[Answer]:
        method, most = self.options.score or "pll", self.options.batch_tokens
        for score, tokens, log_probs in self.hub.score_sequences(sequences, method, max_tokens=most):
            per_token = {"tokens": tokens, "log_probs": [rounded(value) for value in log_probs]}
            entry = {"score": rounded(score), "num_tokens": len(tokens)}
            yield {**entry, **per_token} if self.options.per_token else entry
