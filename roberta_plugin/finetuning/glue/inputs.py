"""Texts of GLUE -> model inputs: a sentence or a pair, or WNLI's text with each phrase in place of the pronoun.

Shapes: T tokens of an input, P phrases of a schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.glue.wnli import Schema
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.progress import terminal_bar

_AT_ONCE = 10_000  # texts in one call of the tokenizer


class SchemaInputs(NamedTuple):
    """Model inputs of a schema that differ in one phrase."""

    sequences: list[NDArray[np.int32]]
    """P inputs (T,), which hold the row's phrase first and then its rivals."""
    before: int
    """Tokens in front of the phrase, the same in all sequences."""
    after: int
    """Tokens behind it."""
    num_tokens: int
    """Tokens of the longest input before it was cut."""


def sentence_inputs(
    texts: Sequence[tuple[str, ...]], encoder: Encoder, split: SplitWriter, *, max_length: int
) -> Iterator[NDArray[np.int32]]:
    """The model's input (T,) of each sentence or pair, in order; the split counts which are cut.

    Example: ("Is it on?", "It is.") -> `<s> Is it on ? </s> </s> It is . </s>`; see `model_inputs.join`.
    """
    for start in terminal_bar(range(0, len(texts), _AT_ONCE), "encoding", unit="10k"):
        part = texts[start : start + _AT_ONCE]
        sides = [encoder.ids_of_all(side) for side in zip(*part, strict=True)]
        for ids in zip(*sides, strict=True):
            num_tokens = sum(map(len, ids)) + (2 if len(ids) == 1 else 4)  # <s> a </s>, or <s> a </s> </s> b </s>
            split.measure("texts" if len(ids) == 1 else "pairs", num_tokens, limit=max_length)
            yield encoder.join(*ids, max_length=max_length)


def schema_inputs(schema: Schema, encoder: Encoder, *, max_length: int) -> SchemaInputs:
    """The text with each phrase in place of the pronoun; a text that is too long loses tokens at both ends.

    Example: "The drain is clogged with hair. It has to be cleaned." with the phrase "The hair" and the rival "The
    drain" -> `<s> The drain is clogged with hair. The hair has to be cleaned. </s>` and `<s> The drain is clogged with
    hair. The drain has to be cleaned. </s>`, with the same tokens before and after the phrase.
    """
    text = schema.before.rstrip()
    space = schema.before[len(text) :]  # byte-level BPE: a space belongs to the word that follows
    before, after = encoder.ids(text), encoder.ids(schema.after)
    phrases = [encoder.ids(space + phrase) for phrase in (schema.phrase, *schema.rivals)]
    num_tokens = len(before) + max(map(len, phrases)) + len(after) + 2
    room = max_length - 2 - max(map(len, phrases))
    after = after[: max(room - len(before), room // 2)]
    before = before[max(0, len(before) + len(after) - room) :]
    sequences = [encoder.join(np.concatenate([before, ids, after]), max_length=max_length) for ids in phrases]
    return SchemaInputs(sequences, len(before) + 1, len(after) + 1, num_tokens)
