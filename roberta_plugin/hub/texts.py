"""Texts <-> ids of a model, where a text may contain `<mask>`; words of a text <-> the tokens that cover them.

Features of tokens become features of words as in fairseq's `alignment_utils`: a word's vector is the sum of its
tokens' features, and a token that covers parts of n words counts by 1/n in each. So the vectors of <s>, all words and
</s> add up to the features of all tokens, except tokens of white space alone.

Shapes: T tokens of a sequence, W words, D model dimension.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.data.tokenizers.additions import base_of
from roberta_plugin.data.tokenizers.base import LocatedTokens, Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.whitespace import Whitespace
from roberta_plugin.data.vocabulary import MASK, Vocabulary
from roberta_plugin.data.white_space import rstrip
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.words import split_words
from roberta_plugin.tables import check_text, short

Text = str | Sequence[str]
"""A text, or several texts that the model reads as one sequence: a pair."""


def texts_in(values: object, *, most: int = sys.maxsize, what: str = "text") -> list[Any]:
    """All texts of a list, a generator or a column of a table: each a str, or a list of up to `most` texts for a pair.

    Raises:
        ValueError: naming the first value that is neither; `what` is the word for such values.
    """
    given = _as_list(values)
    if given is None:
        shown = f"the text {values[:80]!r}" if isinstance(values, str) else f"{values!r:.80}"
        or_ids = " (`predict` and `extract_features` also take ids, as `encode` returns them)" if most > 1 else ""
        raise ValueError(f"Give a list of {what}s{or_ids}, got {shown}.")
    texts = [value if isinstance(value, str) or most == 1 else _as_list(value) or value for value in given]
    for number, text in enumerate(texts, start=1):
        sides = text if isinstance(text, list) and text and most > 1 else [text]
        if len(sides) > most:
            raise ValueError(f"Text {number} is {short(text)}, but at most {most} texts are read as one.")
        for side in sides:
            check_text(side, f"{what} {number}", f"The {what}s given", may_be_empty=True)
    return texts


def _as_list(values: Any) -> list[Any] | None:
    """The items of an iterable; None for a single value, and for iterables without an order."""
    if isinstance(values, str | bytes | bytearray | Mapping | Set | Tensor):
        return None
    try:
        return list(values)
    except TypeError:
        return None


class Filling(NamedTuple):
    """One answer of `fill_mask`: the text with the mask filled, the answer's probability, and the answer itself."""

    text: str
    probability: float
    token: str


class TextCodec:
    """A tokenizer and the vocabulary that numbers its symbols."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, *, mask_keeps_space: bool = False) -> None:
        """Make a codec; with `mask_keeps_space`, the space before `<mask>` is a token of its own."""
        self.mask_keeps_space = mask_keeps_space
        self.encoder = Encoder(tokenizer, vocabulary, mask_keeps_space=mask_keeps_space)
        names = [MASK, *([self.encoder.own_mask] if self.encoder.own_mask else [])]
        self.mask_names = " or ".join(names)
        """The names of the mask in a text, for messages."""
        self._mask = re.compile("|".join(map(re.escape, names)))
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self._to_tokenizer_id = np.asarray(vocabulary.model_to_tokenizer(tokenizer), dtype=np.int64)
        self._token_texts: dict[int, str] = {}

    def has_mask(self, text: str) -> bool:
        """True if a text names the mask, by our name or the model's own."""
        return self._mask.search(text) is not None

    def ids(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Ids of each text without <s> and </s>. `<mask>` is one id; see `before_mask` for the space before it."""
        spans: list[str] = []
        counts = []
        for text in texts:
            *before_masks, last = self._mask.split(text)
            spans += [*(self.before_mask(span) for span in before_masks), last]
            counts.append(len(before_masks) + 1)
        encoded = self.encoder.ids_of_all(spans)
        mask = np.array([self.vocabulary.mask_id], dtype=np.int32)
        result, start = [], 0
        for count in counts:
            parts = [encoded[start]]
            for span in encoded[start + 1 : start + count]:
                parts += [mask, span]
            result.append(np.concatenate(parts) if count > 1 else parts[0])
            start += count
        return result

    def words(self, text: str) -> list[str]:
        """Words and punctuation marks (`split_words`), with `<mask>` as one word."""
        first, *others = self._mask.split(text)
        words = split_words(first)
        for name, other in zip(self._mask.findall(text), others, strict=True):
            words += [name, *split_words(other)]
        return words

    def locate(self, text: str) -> LocatedTokens:
        """The tokens of a text as in `ids`, and their places. The id of a mask is -1; it covers `<mask>` and its space.

        Raises:
            ValueError: if the tokenizer changes the text so that the places are unknown.
        """
        parts: list[LocatedTokens] = []
        start = 0
        for match in self._mask.finditer(text):
            before = self.before_mask(text[start : match.start()])
            parts.append(_shift(self.tokenizer.locate(before), start))
            mask = (-1,), (start + len(before),), (match.end(),)
            parts.append(LocatedTokens(*(np.array(values, dtype=np.int32) for values in mask)))
            start = match.end()
        parts.append(_shift(self.tokenizer.locate(text[start:]), start))
        return LocatedTokens(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    def before_mask(self, text: str) -> str:
        """The text before a mask as the model sees it."""
        return text if self.mask_keeps_space else rstrip(text)

    def sequences(self, texts: Sequence[Text], *, no_separator: bool = False) -> list[NDArray[np.int64]]:
        """The model's input (T,) of each text: `<s> a </s>`, or of each pair: `<s> a </s> </s> b </s>`.

        With `no_separator`, there is one </s> between the texts of a pair.
        """
        grouped = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        encoded = iter(self.ids([text for group in grouped for text in group]))
        bos, eos = [self.vocabulary.bos_id], [self.vocabulary.eos_id]
        between = eos if no_separator else eos * 2
        sequences = []
        for group in grouped:
            parts = [bos, next(encoded)]
            for _ in group[1:]:
                parts += [between, next(encoded)]
            sequences.append(np.concatenate([*parts, eos]).astype(np.int64))
        return sequences

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Ids (T,) -> the texts of the sequence, which are separated by `</s> </s>`."""
        ids = ids[1:] if ids and ids[0] == self.vocabulary.bos_id else ids
        eos_id = self.vocabulary.eos_id
        sentences: list[list[int]] = [[]]
        for position, token in enumerate(ids):
            if token == eos_id and position and ids[position - 1] == eos_id:
                sentences.append([])
            elif token not in (eos_id, self.vocabulary.pad_id):
                sentences[-1].append(token)
        return [self._decode_with_masks(sentence) for sentence in sentences]

    def word_starts(self, sequence: NDArray[Any]) -> NDArray[np.bool_]:
        """True for each id of the model's input (T,) that begins a word; special symbols do."""
        ids = self._to_tokenizer_id[sequence]
        starts = np.ones(len(sequence), dtype=np.bool_)
        starts[ids >= 0] = self.tokenizer.begins_word(ids[ids >= 0])
        return starts

    def shown(self, token: int) -> str:
        """The text of one id as `token_text`, or its symbol if it is special."""
        return self.token_text(token) or self.vocabulary.symbols[token]

    def token_text(self, token: int) -> str:
        """Text of one id, with the space before it if the token has one."""
        if token not in self._token_texts:
            self._token_texts[token] = self._decode_span([token], is_first=False)
        return self._token_texts[token]

    def fill(self, text: str, which: int, token: int, probability: float) -> Filling:
        """The text with mask number `which` filled by a token."""
        match = list(self._mask.finditer(text))[which]
        answer = self.token_text(token)
        before, after = text[: match.start()], text[match.end() :]
        # If the model did not see the space before the mask, the answer brings its own space, or there is none.
        start = self.before_mask(before)
        text = start + answer if start else self._decode_span([token], is_first=True)
        return Filling(text=text + after, probability=probability, token=answer)

    def _decode_with_masks(self, ids: Sequence[int]) -> str:
        texts: list[str] = []
        span: list[int] = []
        for token in [*ids, None]:
            if token is None or token == self.vocabulary.mask_id:
                texts.append(self._decode_span(span, is_first=not texts))
                span = []
            else:
                span.append(token)
        return (MASK if self.mask_keeps_space else f" {MASK}").join(texts)

    def _decode_span(self, ids: Sequence[int], *, is_first: bool) -> str:
        """Text of ids, with the space before it that decoding drops, except at the beginning."""
        all_ids = self._to_tokenizer_id[np.asarray(ids, dtype=np.int64)]
        known = [int(token) for token in all_ids if token >= 0]
        has_space = known and not is_first and self._has_space[known[0]]
        return " " * bool(has_space) + self.tokenizer.decode(known)

    @cached_property
    def _has_space(self) -> NDArray[np.bool_]:
        """True for each tokenizer id that has a space before it which decoding drops."""
        starts, base = self.tokenizer.word_starts(), base_of(self.tokenizer)
        if isinstance(base, ByteLevelBpe):
            return np.zeros_like(starts)
        if not isinstance(base, Whitespace):
            starts[len(base.symbols) :] = False  # added tokens
        return starts


class AlignedWord(NamedTuple):
    """A word and its vector; `str(word)` is its text."""

    text: str
    vector: Tensor
    """Vector (D,), or (layers + 1, D) with all hidden states."""
    start: int
    """First character in the sentence; -1 for <s> and </s>."""
    end: int
    """The character after the last one."""

    def __str__(self) -> str:
        return self.text


def _shift(located: LocatedTokens, start: int) -> LocatedTokens:
    return located._replace(starts=located.starts + start, ends=located.ends + start)


def align(text: str, located: LocatedTokens, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Numbers of the tokens that cover characters of each word, counted from 0 without <s>.

    Example: the tokens "don", "'t", " go" and the words "don't" and "go" -> [[0, 1], [2]].
    """
    return [list(_tokens_in(text, located, *span)) for span in spans]


def _tokens_in(text: str, located: LocatedTokens, start: int, end: int) -> Iterator[int]:
    first = int(np.searchsorted(located.ends, start, side="right"))
    for token in range(first, len(located.ids)):
        if located.starts[token] >= end:
            break
        covered = text[max(located.starts[token], start) : min(located.ends[token], end)]
        if covered.strip():
            yield token


def features_of_words(features: Tensor, alignment: Sequence[Sequence[int]]) -> Tensor:
    """Features (T, D) with <s> and </s> -> vectors (W + 2, D) of <s>, the words, </s>."""
    weights = torch.zeros(len(alignment) + 2, len(features), device=features.device)  # (W + 2, T)
    weights[0, 0] = weights[-1, -1] = 1.0
    for word, tokens in enumerate(alignment, start=1):
        weights[word, [token + 1 for token in tokens]] = 1.0
    weights = weights / weights.sum(dim=0).clamp(min=1.0)
    return weights.to(features.dtype) @ features
