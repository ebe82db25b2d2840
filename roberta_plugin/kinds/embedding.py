"""A text or a pair -> a vector: the mean of the last layer over all tokens, or its features of <s>.

Example: {"text": "A cat."} -> {"embedding": [0.1, -0.3, ...]}
"""

from __future__ import annotations

from collections.abc import Sequence

from roberta_plugin.kinds.base import Answer, Kind, marked
from roberta_plugin.kinds.records import text_of
from roberta_plugin.kinds.texts import text_inputs
from roberta_plugin.tables import Row

VECTOR = "embedding"


class Embedding(Kind):
    """Features of the encoder; any model has them."""

    name = "embedding"
    description = "gives a vector to a text or a pair of texts"
    head = ""
    fields = ("text", "text_pair")

    def open(self) -> None:
        """See `Kind.open`."""

    def read_question(self, row: Row) -> tuple[str, ...]:
        """See `Kind.read_question`: the text, or the two."""
        first = text_of(row, self.names_of(0), option="--text-column")
        if not any(name in row.values for name in self.names_of(1)):
            return (first,)
        return first, text_of(row, self.names_of(1), option="--text-pair-column")

    def answer(self, questions: Sequence[tuple[str, ...]]) -> list[Answer]:
        """See `Kind.answer`; texts that are too long are cut."""
        inputs = text_inputs(questions, self.hub.codec.encoder, max_length=self.max_length)
        sequences = [sequence for sequence, _ in inputs]
        vectors = self.hub.pooled(sequences, self.options.pooling, max_tokens=self.options.batch_tokens)
        return [
            marked({VECTOR: vector}, is_cut=num_tokens > self.max_length)
            for (_, num_tokens), vector in zip(inputs, vectors.tolist(), strict=True)
        ]
