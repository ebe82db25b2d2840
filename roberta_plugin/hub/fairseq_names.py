"""Attributes of fairseq's hub interface: `hub.bpe` and `hub.task`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq.data import Dictionary

from roberta_plugin.conversion.pretrained import fairseq_dictionary
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import SPECIALS, Vocabulary
from roberta_plugin.models.checkpoints.building import ModelOnlyTask


class Bpe:
    """The tokenizer as fairseq's BPE: text -> symbols of dict.txt with spaces between them, and back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = {symbol: number for number, symbol in enumerate(tokenizer.symbols)}

    def encode(self, text: str) -> str:
        """Example, GPT-2's BPE: "Hello world" -> "15496 995"."""
        return " ".join(self._tokenizer.symbols[token] for token in self._tokenizer.encode(text))

    def decode(self, symbols: str) -> str:
        """Symbols with spaces between them -> text; special symbols stay as they are written."""
        text, span = "", []
        for symbol in [*symbols.split(), None]:
            if symbol in self._ids:
                span.append(self._ids[symbol])
                continue
            text += self._tokenizer.decode(span) + (symbol or "")
            span = []
        return text


class HubTask(ModelOnlyTask):
    """The attributes of a fairseq task that need no training data."""

    def __init__(self, vocabulary: Vocabulary, max_positions: int, labels: Sequence[str]) -> None:
        super().__init__(fairseq_dictionary(vocabulary), max_positions)
        self.mask_idx = vocabulary.mask_id
        self._labels = labels

    @property
    def label_dictionary(self) -> Any:
        """Names of the labels: label number i is symbol number i + nspecial.

        Raises:
            AttributeError: if the checkpoint does not say them.
        """
        if not self._labels:
            raise AttributeError("The checkpoint holds no names of labels: they are in the folder it was trained on.")
        dictionary = Dictionary()
        assert dictionary.nspecial == len(SPECIALS)
        for label in self._labels:
            dictionary.add_symbol(str(label))
        return dictionary
