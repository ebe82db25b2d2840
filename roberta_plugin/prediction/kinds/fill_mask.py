"""A text with one `<mask>` or several -> the most probable tokens for each.

Example: {"text": "The cat <mask> on it."} -> {"masks": [[{"token": " sat", "probability": 0.7, "text": "The cat sat on
it."}, ...]]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.hub import RobertaHub
from roberta_plugin.hub.texts import Filling, fill
from roberta_plugin.prediction.kinds.base import Answer, Kind, text_of
from roberta_plugin.prediction.settings import PredictSettings


class FillMask(Kind):
    """The masked-LM head at the masks."""

    name = "fill_mask"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        hub.check_masked_lm()

    def read(self, record: Mapping[str, Any]) -> str:
        """See `Kind.read`."""
        text = text_of(record, "text")
        if MASK not in text:
            raise ValueError(f"the text {text[:60]!r} has no {MASK}. Put one where a token is to be found.")
        return text

    def answer(self, questions: Sequence[str]) -> list[Answer]:
        """See `Kind.answer`; a text that is too long is refused, because its masks might be cut off."""
        sequences = self.hub.codec.sequences(questions)
        fitting = [sequence for sequence in sequences if len(sequence) <= self.max_length]
        found = iter(self.hub.fill_sequences(fitting, topk=self.settings.top_k, max_tokens=self.settings.batch_tokens))
        answers: list[Answer] = []
        for text, sequence in zip(questions, sequences, strict=True):
            if len(sequence) > self.max_length:
                answers.append(too_long(len(sequence), self.max_length))
                continue
            masks = [
                [fill(self.hub.codec, text, which, token, probability) for probability, token in best]
                for which, best in enumerate(next(found))
            ]
            answers.append({"masks": [[_entry(filling) for filling in best] for best in masks]})
        return answers


def too_long(length: int, max_length: int) -> ValueError:
    """The error about a text that cannot be cut."""
    return ValueError(f"the text has {length} tokens, and {max_length} is the most. Shorten it.")


def _entry(filling: Filling) -> dict[str, Any]:
    return {"token": filling.token, "probability": round(filling.probability, 6), "text": filling.text}
