"""A text or a pair -> a vector: the mean of the last layer over all tokens, or its features of <s>.

Example: {"text": "A cat."} -> {"embedding": [0.1, -0.3, ...]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roberta_plugin.prediction.kinds.base import Answer, Kind, Texts, marked, sequences_of, text_of

VECTOR = "embedding"


class Embedding(Kind):
    """Features of the encoder; any model has them."""

    name = "embedding"
    columns = ("text", "text_pair")

    def read(self, record: Mapping[str, Any]) -> Texts:
        """See `Kind.read`."""
        return Texts(text_of(record, "text"), text_of(record, "text_pair") if "text_pair" in record else None)

    def answer(self, questions: Sequence[Texts]) -> list[Answer]:
        """See `Kind.answer`; texts that are too long are cut."""
        inputs = sequences_of(self.hub, questions, max_length=self.max_length)
        sequences = [sequence for sequence, _ in inputs]
        vectors = self.hub.pooled(sequences, self.settings.pooling, max_tokens=self.settings.batch_tokens)
        return [
            marked({VECTOR: vector}, is_cut=is_cut)
            for (_, is_cut), vector in zip(inputs, vectors.tolist(), strict=True)
        ]
