"""Texts -> model inputs: `<s> a </s>`, or `<s> a </s> </s> b </s>` for two (paper section 3.1; fairseq's convention).

`TextLayout.long_texts` decides which part of a text is read if the text is longer than an input (Sun et al. 2019, "How
to Fine-Tune BERT for Text Classification?", section 5.3.1):

    None       its beginning, as with --long-texts head
    tail       its end
    head+tail  its beginning (a quarter of the room) and its end (the rest)
    windows    all of it, in parts that are as long as an input. The features of their <s> are pooled, by mean or
               maximum, and the head judges the pooled features: one answer for each text

Windows are spread evenly: the first begins with the text, the last one ends with it, and the starts of two are at most
`window_stride` tokens apart. In training a text has at most `max_windows` windows, which bounds its memory; a longer
text is then read with gaps. In a pair, the longer text is divided, and the shorter one is in each window.

Example: 10 tokens, room for 4, no overlap -> three windows, from the tokens 0, 3 and 6.

Shapes: A, B tokens of two texts, T tokens of an input, S inputs of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.normal_form import NormalFormWatch
from roberta_plugin.data.tokenizers.additions import own_mask_of
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.data.white_space import rstrip
from roberta_plugin.finetuning.layouts import LONG_TEXTS, POOLINGS
from roberta_plugin.finetuning.prepared import CUT, DIVIDED, SplitWriter
from roberta_plugin.progress import terminal_bar


class Encoder:
    """Text -> model ids: a tokenizer, and the vocabulary that numbers its symbols.

    If the model's own tokenizer calls the mask [MASK], then [MASK] is the mask in any text. The space before it is part
    of the mask, unless `mask_keeps_space` is true.

    Example: Encoder(tokenizer, vocabulary).join(a, b, max_length=512) of the ids of two texts.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, *, mask_keeps_space: bool = False) -> None:
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self.own_mask, self._mask_keeps_space = own_mask_of(tokenizer), mask_keeps_space
        self.to_model_id = vocabulary.tokenizer_to_model(tokenizer)  # (number of tokenizer ids,)
        self._watch = NormalFormWatch(tokenizer)

    def ids(self, text: str) -> NDArray[np.int32]:
        """Model ids of a text, without <s> and </s>."""
        if self.own_mask is not None and self.own_mask in text:
            *before, last = text.split(self.own_mask)
            mask = np.array([self.vocabulary.mask_id], dtype=np.int32)
            kept = before if self._mask_keeps_space else [rstrip(span) for span in before]
            return np.concatenate([part for span in kept for part in (self.ids(span), mask)] + [self.ids(last)])
        ids: NDArray[np.int32] = self.to_model_id[self.tokenizer.encode(text)] if text else np.empty(0, dtype=np.int32)
        self._watch.look(text, len(ids))
        return ids

    def ids_of_all(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Model ids of many texts, faster than one by one; a text may contain line ends."""
        # The tokenizer encodes a list of lines at once. A text with a line end is not one line, and [MASK] is cut out
        # of a text before encoding: such texts are encoded apart, and have an empty line in the list.
        is_apart = ["\n" in text or (self.own_mask is not None and self.own_mask in text) for text in texts]
        one_line = ["" if apart else text for text, apart in zip(texts, is_apart, strict=True)]
        ids, lengths = self.tokenizer.encode_lines(one_line)
        parts = np.split(self.to_model_id[ids], np.cumsum(lengths)[:-1]) if texts else []
        for text, part in zip(one_line, parts, strict=True):
            self._watch.look(text, len(part))
        return [self.ids(text) if apart else part for text, part, apart in zip(texts, parts, is_apart, strict=True)]

    def join(
        self, a: NDArray[np.int32], b: NDArray[np.int32] | None = None, *, max_length: int, separators: int = 2
    ) -> NDArray[np.int32]:
        """Ids (A,) and (B,) -> the model's input (T,), T <= max_length, as the function `join` describes it."""
        return join(self.vocabulary, a, b, max_length=max_length, separators=separators)


def join(
    vocabulary: Vocabulary,
    a: NDArray[np.int32],
    b: NDArray[np.int32] | None = None,
    *,
    max_length: int,
    separators: int = 2,
) -> NDArray[np.int32]:
    """Ids of one text (A,) or two (A,), (B,) -> the model's input (T,).

    If T would exceed `max_length`, the longer of the two texts loses tokens at its end; once both have the same length,
    both lose tokens alternately. The final </s> always stays. `separators` is how many </s> are between two texts.

    Example: a = [5, 6, 7, 8], b = [9], max_length 8 (4 specials leave room for 4) -> `<s> 5 6 7 </s> </s> 9 </s>`.
    """
    bos, eos = [vocabulary.bos_id], [vocabulary.eos_id]
    if b is None:
        return np.concatenate([bos, a[: max_length - 2], eos]).astype(np.int32)
    room = max_length - 2 - separators
    assert room >= 2, "a pair needs six tokens"
    keep_a, keep_b = shares(len(a), len(b), room)
    a, b = a[:keep_a], b[:keep_b]
    return np.concatenate([bos, a, eos * separators, b, eos]).astype(np.int32)


def shares(a: int, b: int, room: int) -> tuple[int, int]:
    """Tokens that remain of two texts with `a` and `b` tokens, by the rule of `join`.

    Example: 4 and 1 tokens, room for 4 -> 3 and 1.
    """
    if a + b <= room:
        return a, b
    keep_a = min(a, max(room - b, room - room // 2))
    return keep_a, room - keep_a


Ids = NDArray[np.int32]
MAX_WINDOWS = 8
_HEAD_SHARE = 128 / 510  # Sun et al. keep the first 128 and the last 382 tokens
_AT_ONCE = 10_000  # texts in one call of the tokenizer


@dataclass(frozen=True, kw_only=True)
class TextLayout:
    """How texts that are too long are read: the settings of the prepared folder, and `max_length`."""

    max_length: int
    long_texts: str | None = None
    """One of `LONG_TEXTS`; None: head."""
    window_stride: int | None = None
    """The largest distance between the starts of two windows, in tokens; None: windows do not overlap."""
    max_windows: int | None = None
    """The largest number of windows of a text in training."""
    window_pooling: str | None = None
    """One of `POOLINGS`."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, max_length: int) -> TextLayout:
        """The layout in recorded settings; folders of earlier versions have none, so long texts are cut."""
        names = ("long_texts", "window_stride", "max_windows", "window_pooling")
        return cls(max_length=max_length, **{name: settings.get(name) for name in names})

    @property
    def has_windows(self) -> bool:
        """True if a text can have several inputs."""
        return self.long_texts == "windows"

    def checked(self) -> TextLayout:
        """This layout, after a check of its values, which come from a file."""
        for name in ("max_length", "window_stride", "max_windows"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 < value < 1 << 20):
                raise ValueError(f"{name} is {value!r}, not a number of tokens or windows")
        if self.long_texts not in (None, *LONG_TEXTS):
            raise ValueError(f"long_texts is {self.long_texts!r}, not one of {', '.join(LONG_TEXTS)}")
        if self.window_pooling not in (POOLINGS if self.has_windows else (None,)):
            raise ValueError(f"window_pooling is {self.window_pooling!r}")
        return self


class Inputs(NamedTuple):
    """The model's inputs for a text or a pair."""

    sequences: list[Ids]
    """S inputs (T,); without windows only one."""
    num_tokens: int
    """Tokens of the whole text, with <s> and </s>."""
    is_cut: bool
    """True if some of the text is not read."""


def inputs_of(
    texts: Sequence[tuple[str, ...]], encoder: Encoder, layout: TextLayout, *, is_training: bool = False
) -> list[Inputs]:
    """The model's inputs for each text or pair; in training, a text has at most `max_windows` windows.

    Example: ("Is it on?", "It is.") -> `<s> Is it on ? </s> </s> It is . </s>`
    """
    ids = iter(encoder.ids_of_all([side for text in texts for side in text]))
    most = layout.max_windows if is_training else None
    inputs = []
    for text in texts:
        sides = [next(ids) for _ in text]
        num_tokens = sum(map(len, sides)) + 2 * len(sides)  # <s> a </s>, or <s> a </s> </s> b </s>
        if layout.has_windows and num_tokens > layout.max_length:
            parts, is_cut = _windows(sides, layout, most)
        else:
            parts, is_cut = [_cut(sides, layout)], num_tokens > layout.max_length
        inputs.append(Inputs([encoder.join(*part, max_length=layout.max_length) for part in parts], num_tokens, is_cut))
    return inputs


def sentence_inputs(
    texts: Sequence[tuple[str, ...]], encoder: Encoder, split: SplitWriter, layout: TextLayout
) -> Iterator[list[Ids]]:
    """The model's inputs (T,) of each sentence or pair, in order; the split counts texts that are cut or divided."""
    is_training = split.name == "train"
    limit = layout.max_length
    for start in terminal_bar(range(0, len(texts), _AT_ONCE), "encoding", unit="10k"):
        part = texts[start : start + _AT_ONCE]
        for text, inputs in zip(part, inputs_of(part, encoder, layout, is_training=is_training), strict=True):
            what = "texts" if len(text) == 1 else "pairs"
            split.measure(what, inputs.num_tokens, limit=limit, fate=DIVIDED if layout.has_windows else CUT)
            if layout.has_windows:
                lost = inputs.num_tokens if inputs.is_cut else 0
                split.measure(what, lost, limit=limit, fate="not read whole, for want of windows or room")
            yield inputs.sequences


def _cut(sides: Sequence[Ids], layout: TextLayout) -> list[Ids]:
    """The texts, cut so that all of them fit into one input."""
    room = layout.max_length - 2 * len(sides)
    lengths = [room] if len(sides) == 1 else shares(len(sides[0]), len(sides[1]), room)
    return [_kept(ids, length, layout.long_texts) for ids, length in zip(sides, lengths, strict=True)]


def _kept(ids: Ids, length: int, long_texts: str | None) -> Ids:
    if len(ids) <= length:
        return ids
    head = {"tail": 0, "head+tail": round(length * _HEAD_SHARE)}.get(long_texts or "", length)
    return np.concatenate([ids[:head], ids[len(ids) - length + head :]])


def _windows(sides: Sequence[Ids], layout: TextLayout, most: int | None) -> tuple[list[list[Ids]], bool]:
    """The texts of each window of a text or pair that is too long, and True if some tokens are in no window."""
    room = layout.max_length - 2 * len(sides)
    longer = len(sides) - 1 if len(sides[0]) <= len(sides[-1]) else 0
    others = [ids[: room // 2] for number, ids in enumerate(sides) if number != longer]
    room -= sum(map(len, others))
    stride = min(layout.window_stride or room, room)
    starts = spread(len(sides[longer]), room=room, stride=stride, most=most)
    divided = sides[longer]
    parts = []
    for start in starts:
        part = list(others)
        part.insert(longer, divided[start : start + room])
        parts.append(part)
    has_gaps = len(starts) > 1 and starts[1] > room  # all distances are the same, up to one token
    return parts, has_gaps or sum(map(len, others)) + len(divided) < sum(map(len, sides))


def spread(num_tokens: int, *, room: int, stride: int, most: int | None = None) -> list[int]:
    """Starts of windows of `room` tokens, spread evenly over a text and at most `stride` apart, but at most `most`.

    Example: spread(10, room=4, stride=4) -> [0, 3, 6]; with most=2 -> [0, 6].
    """
    beyond = max(0, num_tokens - room)
    number = -(-beyond // stride) + 1
    number = number if most is None else min(number, most)
    return [0] if number == 1 else [index * beyond // (number - 1) for index in range(number)]
