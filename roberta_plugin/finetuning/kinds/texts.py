"""Kinds that read a text or a pair of texts, which may be too long for the model."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from roberta_plugin.finetuning.kinds.answering import Answer, marked
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.usage import Exported, note_on_long_texts, pipeline_block
from roberta_plugin.finetuning.layouts import POOLINGS
from roberta_plugin.finetuning.layouts.texts import MAX_WINDOWS, TextLayout, inputs_of
from roberta_plugin.finetuning.records import column_of, text_of
from roberta_plugin.tables import Row

logger = logging.getLogger(__name__)

_LONG_TEXTS = ("long_texts", "window_stride", "max_windows", "window_pooling")


class TextKind(Kind):
    """A kind that reads a text or a pair, and decides by the logits of a classification head."""

    fields = ("text", "text_pair")
    free_settings: ClassVar[tuple[str, ...]] = _LONG_TEXTS
    _has_named_unread = False

    @classmethod
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """Settings on texts that are too long (`layouts/texts.py`), from the options of tables of your own."""
        has_windows = options.long_texts == "windows"
        return {
            "long_texts": None if options.long_texts == "head" else options.long_texts,
            "window_stride": options.window_stride,
            "max_windows": (options.max_windows or MAX_WINDOWS) if has_windows else None,
            "window_pooling": (options.window_pooling or POOLINGS[0]) if has_windows else None,
        }

    @classmethod
    @override
    def taken_over(cls, trained: Mapping[str, Any]) -> dict[str, Any]:
        names = _LONG_TEXTS if trained.get("long_texts") else ()
        length = super().taken_over(trained)
        return {**length, **{name: trained.get(name) for name in names}} if length else {}

    @override
    def usage(self, model: Exported) -> str:
        assert self.hugging_face is not None, "there is a class for it"
        texts = '["A text.", "Another one."]'
        if model.reads_pairs:
            texts = '[{"text": "A text.", "text_pair": "Another one."}]'
        imports, arguments, lines = self.usage_of(model, f"pipe({texts}, {model.cut()})")
        call = f'"{self.hugging_face.pipeline}", "FOLDER"{arguments}'
        return pipeline_block(call, *lines, imports=imports) + note_on_long_texts(model)

    def usage_of(self, model: Exported, call: str) -> tuple[str, str, list[str]]:
        """Imports, the arguments of `pipeline`, and the lines that turn the results of `call` into answers."""
        assert self.hugging_face is not None, "there is a class for it"
        return "", self.hugging_face.arguments or "", [f"print({call})"]

    def read_question(self, row: Row) -> tuple[str, ...]:
        """The text, or the two texts, of a row or record."""
        if self.is_answering and self.official.texts is not None and "text" not in row.values:
            return self.official.texts(row.values)
        column = column_of(row, self.names_of(0), option="--text-column")
        first, second = text_of(row, (column,), option="--text-column"), self.second_column(row, column)
        if second is not None:
            return first, text_of(row, (second,), option="--text-pair-column")
        if self.is_answering and "text_column" not in self.settings and self.official.is_pair is None:
            self._name_unread(row)
        return (first,)

    def _name_unread(self, row: Row) -> None:
        """Warn once of texts of a record that are not read, if the model may have learned from pairs."""
        no_texts = {*self.names_of(0), "id", "label", self.options.id_column}
        texts = [name for name, value in row.values.items() if isinstance(value, str) and any(map(str.isalpha, value))]
        unread = [name for name in texts if name not in no_texts]
        if unread and not self._has_named_unread:
            self._has_named_unread = True
            logger.warning(
                f"{', '.join(map(repr, unread))} of the records {'is' if len(unread) == 1 else 'are'} not read, and "
                "the model does not say whether it was fine-tuned on pairs of texts: if it was, name the column of the "
                "second by --text-pair-column"
            )

    def answer(self, questions: Sequence[tuple[str, ...]]) -> list[Answer]:
        """The answer to each text or pair, in order; texts that are too long are cut or divided as in fine-tuning."""
        layout = TextLayout.from_settings(self.settings, max_length=self.max_length)
        inputs = inputs_of(questions, self.hub.codec.encoder, layout)
        sequences = [each.sequences for each in inputs]
        logits = self.hub.text_logits(
            sequences, self.head_name, pooling=self.window_pooling, max_tokens=self.options.batch_tokens
        )
        answers = self.decode([RawOutputs(logits=logits.numpy())])
        return [marked(answer, is_cut=each.is_cut) for answer, each in zip(answers, inputs, strict=True)]

    @abstractmethod
    def decode(self, members: Sequence[RawOutputs]) -> list[dict[str, Any]]:
        """The answer to each example, by the mean of the members of an ensemble."""
