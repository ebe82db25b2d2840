"""A text, or the words of one -> a tag for each word, and the entities that the tags spell.

A text is divided into words and punctuation marks (`hub/texts.split_words`), which the model reads as in training:
with one space between them. Positions are characters of the text; of words, those of the words joined by single spaces.
A text that is too long is read in overlapping windows, as in training.

Example: {"text": "I live in New York."} -> {"words": ["I", "live", "in", "New", "York", "."], "tags": ["O", "O", "O",
"B-LOC", "I-LOC", "O"], "entities": [{"type": "LOC", "text": "New York", "start": 10, "end": 18, "first_word": 3,
"last_word": 4, "score": 0.99}]}; the score is the mean probability of the words' tags.

Shapes: W words of all texts, C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.hub import RobertaHub
from roberta_plugin.hub.texts import split_words, word_spans
from roberta_plugin.kinds.entities import entities_of
from roberta_plugin.kinds.tags import best_valid
from roberta_plugin.kinds.words import TaggingLayout, WordEncoder, windows_of
from roberta_plugin.prediction.kinds.base import Answer, Kind, chosen_head, text_of
from roberta_plugin.prediction.settings import PredictSettings


class TextOfWords(NamedTuple):
    """A text and its words."""

    text: str
    words: list[str]
    spans: list[tuple[int, int]]
    """Characters of each word."""


class Tagging(Kind):
    """A token head at the first token of each word."""

    name = "tagging"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = chosen_head(hub.heads_of("token"), settings.head, kind=self.name)
        stride = {"doc_stride": self.trained["doc_stride"]} if "doc_stride" in self.trained else {}
        self.layout = TaggingLayout.of(self.max_length, **stride)
        self.words = WordEncoder(hub.codec.encoder)
        num_labels = hub.num_classes(self.head)
        known = hub.labels if len(hub.labels) == num_labels else None
        self.labels = known or [f"LABEL_{number}" for number in range(num_labels)]

    def read(self, record: Mapping[str, Any]) -> TextOfWords:
        """See `Kind.read`."""
        own = self.trained.get("text_column")  # of own data
        if self.settings.text_column is not None:
            record = {"words" if isinstance(record["text"], list) else "text": record["text"]}
        name = next((name for name in ("words", "tokens", own) if name in record), None)
        if name is None:
            text = text_of(record, "text")
            words = split_words(text)
            if not words:
                raise ValueError("the field 'text' has no words. Give a text, or leave the record out.")
            return TextOfWords(text, words, word_spans(text, words))
        words = record[name]
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise ValueError(f"the field {name!r} must be a list of words. Correct it.")
        ends = np.cumsum([len(word) + 1 for word in words]).tolist()
        spans = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
        return TextOfWords(" ".join(words), words, spans)

    def answer(self, questions: Sequence[TextOfWords]) -> list[Answer]:
        """See `Kind.answer`."""
        probabilities = self._probabilities(questions)  # (W, C)
        offsets = np.cumsum([0, *(len(each.words) for each in questions)])
        if self.settings.valid_sequences:
            found = best_valid(probabilities, offsets, self.labels)
        else:
            found = probabilities.argmax(axis=1)
        scores = probabilities[np.arange(len(found)), found]
        return [
            self._entry(each, found[first:stop], scores[first:stop])
            for each, first, stop in zip(questions, offsets[:-1], offsets[1:], strict=True)
        ]

    def _probabilities(self, questions: Sequence[TextOfWords]) -> NDArray[np.float64]:
        """Probabilities of the labels of all words (W, C); a word without a token has the first label, which is O."""
        vocabulary = self.hub.vocabulary
        ids = {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}
        tokens = self.words.tokens_of_all([each.words for each in questions])
        windows = [window for words in tokens for window in windows_of(words, self.layout, **ids)]
        logits = self.hub.token_logits(
            [window.tokens for window in windows], self.head, max_tokens=self.settings.batch_tokens
        )
        outside = np.eye(1, len(self.labels), self.labels.index("O") if "O" in self.labels else 0)
        rows = []
        for window, of_window in zip(windows, logits, strict=True):
            of_words = of_window.double().softmax(dim=-1).numpy()[window.positions]
            rows.append(np.where(window.positions[:, None] > 0, of_words, outside))
        return np.concatenate(rows)

    def _entry(self, question: TextOfWords, found: NDArray[np.int64], scores: NDArray[np.float64]) -> dict[str, Any]:
        tags = [self.labels[label] for label in found.tolist()]
        entry: dict[str, Any] = {"words": question.words, "tags": tags}
        try:
            entities = entities_of(tags)
        except ValueError:  # tags of another kind, such as parts of speech
            return entry
        spans = question.spans
        entry["entities"] = [
            {
                "type": entity.type,
                "text": question.text[spans[entity.start][0] : spans[entity.stop - 1][1]],
                "start": spans[entity.start][0],
                "end": spans[entity.stop - 1][1],
                "first_word": entity.start,
                "last_word": entity.stop - 1,
                "score": round(float(scores[entity.start : entity.stop].mean()), 6),
            }
            for entity in entities
        ]
        return entry
