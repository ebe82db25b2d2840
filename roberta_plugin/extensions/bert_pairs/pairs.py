"""Pairs of texts: (seed, pass, index) -> `<s> A </s></s> B </s>`, and True if B follows A; in padded arrays.

Stage of the flow in `roberta_plugin/data/__init__.py`, for next-sentence prediction (paper section 4.2). The rules are
from BERT's create_pretraining_data.py (Devlin et al. 2019, appendix A.2):

    - A is the first part of a chunk, up to a random sentence. B is the rest of the chunk or, in half of the pairs,
      begins at a random sentence of another random document and is as long as the chunk allows.
    - If B is random, the rest of the chunk is not lost: it is used later ("put back").
    - A pair that is too long loses tokens one by one, the longer text first, from its front or its back at random.

BERT reads documents in order, draws as it goes, and writes the pairs to a file. Here a pair is computed from its index,
so no pair has to be stored and any process can make any of them. The differences:

    - The chunks are fixed (`pair_chunks`). Text that BERT puts back begins its next chunk; here it is A of
      a second pair, with another random text. A pass of J chunks of several sentences and K single sentences has
      J - M pairs that follow on, and 2 M + K random pairs, where M = (J - K) / 3 chunks are split: one of each J / M
      neighbours, about three, at random. So both kinds of pairs are equally frequent in every pass, and every sentence
      of the corpus is in one text that is not random. BERT's coin is only fair on average, and its single sentences are
      additional random pairs.
    - BERT draws the length of a short pair for each document; here it is drawn for each chunk. A document of a short
      length has many chunks, so BERT's 10 % of the documents are about 30 % of the pairs and 13 % of the tokens (novels
      and news, 512 tokens); here 10 % of the pairs are short and hold 6 % of the tokens.
    - BERT tries ten random documents; here it is always another document, and all others are equally likely.
    - If a single sentence is too long by more than 512 tokens, BERT keeps its middle; here any part may be kept.
    - Static masks (BERT's ten copies of the data) come with their own pairs, as in BERT.

In sentence-pair, the chunk is two sentences, and a random B is one sentence. `</s>` of the lines does not occur inside
A and B.

Example of a batch: A = 11 12 13 (two lines, and 13 is cut off) and B = 14; <s> 0, pad 1, </s> 2, 8 positions:

    tokens in the .bin   11 12 2 13 2  and  14 2
    ids                  0 11 12 2 2 14 2 1
    segments             0  0  0 0 1  1 1 0      `<s> A </s>` is segment 0, as BERT's `[CLS] A [SEP]`

Shapes: n pairs; (2, n) first and second text; B pairs of a batch, T positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.array_files import take_mapped
from roberta_plugin.data.counter_random import add_to_keys, bits64, make_keys
from roberta_plugin.data.mmap_tokens import MmapTokens, check_ranges
from roberta_plugin.extensions.bert_pairs.pair_chunks import Chunks

NUM_SPECIALS = 4  # <s>, and the three </s> of a pair
_OF_PAIRS = 3  # beside the purposes of `block_order` and `dynamic_masking`
_CHOICE, _SPLIT, _PAIR = range(3)  # purposes of random bits: part of their key
_DOCUMENT, _SENTENCE, _FRONT = range(3)  # words of the bits of a pair
_WHOLE, _FIRST_HALF, _SECOND_HALF, _ALONE = range(4)  # a pair's part of its chunk
_HALF = np.uint64(32)
_SENTENCES_AT_ONCE = 32
_BINOMIAL_LIMIT = 512


class Pairs(NamedTuple):
    """Positions of the texts of some pairs."""

    starts: NDArray[np.int64]
    """First token of each text in the .bin (2, n)."""
    spans: NDArray[np.int64]
    """Tokens of each text in the .bin, the </s> of its sentences included (2, n)."""
    contents: NDArray[np.int64]
    """Tokens of each text without </s> (2, n)."""
    fronts: NDArray[np.int64]
    """Tokens that are cut off the front of each text (2, n)."""
    lengths: NDArray[np.int64]
    """Tokens that remain of each text (2, n)."""
    follows: NDArray[np.bool_]
    """True where B follows A in its document (n,)."""


class PairSource:
    """The pairs of one .bin file, numbered from 0 in every pass."""

    def __init__(self, tokens: MmapTokens, chunks: Chunks) -> None:
        self.tokens, self.chunks = tokens, chunks
        joint, single = chunks.num_joint, chunks.num_single
        self.num_split = max(0, (joint - single + 1) // 3)
        self._key: tuple[tuple[int, ...], NDArray[np.uint64]] | None = None  # the last seed and its key

    def __len__(self) -> int:
        return self.chunks.num_joint + self.num_split + self.chunks.num_single

    @property
    def num_following(self) -> int:
        """Pairs of a pass whose second text follows the first."""
        return self.chunks.num_joint - self.num_split

    @property
    def longest(self) -> int:
        """An upper limit of a pair's tokens, special ones included."""
        return self.chunks.targets.longest + NUM_SPECIALS

    def pairs(self, indices: NDArray[np.int64], *, passes: NDArray[np.int64], seed: tuple[int, ...]) -> Pairs:
        """The pairs `indices` (n,) of their passes (n,), which count from 1; `seed` may be several numbers."""
        keys = self._keys(passes, seed)  # (3, n)
        chunk, half = self._chunks_of(indices, keys[_CHOICE])
        first, size, document = self._bounds(chunk)
        cut = first + 1 + scale(bits64(keys[_SPLIT], chunk), np.maximum(size - 1, 0))  # sentences of the first part
        begins = np.where(half == _SECOND_HALF, cut, first)
        stops = np.where((half == _SECOND_HALF), first + size, np.minimum(cut, first + size))
        items, item_ends = np.stack([begins, stops]), np.stack([stops, first + size])
        bits = bits64(keys[_PAIR][:, None], 4 * indices[:, None] + np.arange(3))  # (n, 3)
        follows = half == _WHOLE
        random = np.flatnonzero(~follows)
        if len(random):
            starts, limits = self._random_sentences(document[random], bits[random])
            wanted = self._wanted(begins[random], stops[random])
            items[1, random], item_ends[1, random] = starts, self._enough(starts, limits, wanted)
        longest = self.chunks.targets.longest
        return cut_texts(self.tokens, items, item_ends, bits[:, _FRONT], longest=longest, follows=follows)

    def _keys(self, passes: NDArray[np.int64], seed: tuple[int, ...]) -> NDArray[np.uint64]:
        """A key for each purpose and each pass (3, n)."""
        if self._key is None or self._key[0] != seed:
            self._key = seed, make_keys(*seed, _OF_PAIRS, indices=np.zeros(1, dtype=np.int64))
        keys = add_to_keys(self._key[1].repeat(len(passes)), passes)
        return bits64(keys, np.arange(3)[:, None])

    def _chunks_of(
        self, indices: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The chunk of each pair (n,), joint chunks before single ones, and the part of it that is A (n,)."""
        joint, split = self.chunks.num_joint, self.num_split
        if not split:
            return indices, np.where(indices < joint, _WHOLE, _ALONE)
        is_joint, is_second = indices < joint, (indices >= joint) & (indices < joint + split)
        group = np.where(is_second, indices - joint, ((indices + 1) * split - 1) // joint)
        group = np.minimum(group, split - 1)  # single chunks have no group: any valid number will do
        begin = group * joint // split
        chosen = begin + scale(bits64(keys, group), (group + 1) * joint // split - begin)
        half = np.where(is_joint, np.where(indices == chosen, _FIRST_HALF, _WHOLE), _ALONE)
        chunk = np.where(is_joint, indices, np.where(is_second, chosen, indices - split))
        return chunk, np.where(is_second, _SECOND_HALF, half)

    def _bounds(self, chunks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First item, number of sentences and document of some chunks (n,)."""
        is_single = chunks >= self.chunks.num_joint
        if not is_single.any():
            return self.chunks.joint(chunks)
        first, size, document = (np.ones(len(chunks), dtype=np.int64) for _ in range(3))
        first[is_single], document[is_single] = self.chunks.single(chunks[is_single] - self.chunks.num_joint)
        joint = np.flatnonzero(~is_single)
        first[joint], size[joint], document[joint] = self.chunks.joint(chunks[joint])
        return first, size, document

    def _random_sentences(
        self, documents: NDArray[np.int64], bits: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A random sentence of a random other document for each pair, and the end of that document; both (n,)."""
        other = scale(bits[:, _DOCUMENT], np.full(len(documents), len(self.chunks.documents) - 1))
        other += other >= documents
        first = take_mapped(self.chunks.documents, other)
        size = take_mapped(self.chunks.document_sizes, other).astype(np.int64)
        return first + scale(bits[:, _SENTENCE], size), first + size

    def _wanted(self, first: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens that B of each pair should have (n,)."""
        if self.chunks.pair_format == "sentence-pair":
            return np.ones(len(first), dtype=np.int64)
        last = stops - 1
        content = self.tokens.starts_of(last) + self.tokens.sizes_of(last) - self.tokens.starts_of(first)
        return self.chunks.targets.draw(first) - (content - (stops - first))

    def _enough(
        self, starts: NDArray[np.int64], limits: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The item after the sentences from `starts` on that have `wanted` tokens, at least one, before `limits`."""
        ends, missing = starts + 1, wanted.copy()
        open_rows = np.arange(len(starts))
        items = starts.copy()
        while len(open_rows):
            window = items[open_rows, None] + np.arange(_SENTENCES_AT_ONCE)  # (n,) -> (n, W)
            inside = np.minimum(window, limits[open_rows, None] - 1)
            tokens = take_mapped(self.tokens.sizes, inside.ravel()).reshape(window.shape).astype(np.int64) - 1
            total = np.cumsum(tokens, axis=1)
            count = (total < missing[open_rows, None]).sum(axis=1) + 1  # sentences that are needed
            ends[open_rows] = np.minimum(items[open_rows] + count, limits[open_rows])
            is_open = (count > _SENTENCES_AT_ONCE) & (items[open_rows] + _SENTENCES_AT_ONCE < limits[open_rows])
            missing[open_rows] -= total[:, -1]
            items[open_rows] += _SENTENCES_AT_ONCE
            open_rows = open_rows[is_open]
        return ends


def cut_texts(
    tokens: MmapTokens,
    items: NDArray[np.int64],
    item_ends: NDArray[np.int64],
    bits: NDArray[np.uint64],
    *,
    longest: int,
    follows: NDArray[np.bool_],
) -> Pairs:
    """The texts of the items from `items` to `item_ends` (2, n), cut to fit, with 64 random bits for each pair (n,)."""
    ends = item_ends.ravel() - 1  # the last sentence of each text
    starts = tokens.starts_of(items.ravel())
    spans = tokens.starts_of(ends) + tokens.sizes_of(ends) - starts
    contents = spans.reshape(2, -1) - (item_ends - items)
    lengths = shorten(contents, longest=longest)
    fronts = fronts_of(contents - lengths, bits)
    return Pairs(starts.reshape(2, -1), spans.reshape(2, -1), contents, fronts, lengths, follows)


def scale(bits: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """A random number below each of the `sizes` (n,), from 64 random bits for each (n,)."""
    return (((bits >> _HALF) * sizes.astype(np.uint64)) >> _HALF).astype(np.int64)


def shorten(contents: NDArray[np.int64], *, longest: int) -> NDArray[np.int64]:
    """Tokens that remain of each text (2, n): as in BERT's truncate_seq_pair, the longer text loses one, B if equal.

    Example: at most 7 tokens: texts of 9 and 2 -> 5 and 2; texts of 9 and 5 -> 4 and 3.
    """
    a, b = contents
    half = longest // 2
    return np.minimum(contents, [np.maximum(longest - b, longest - half), np.maximum(longest - a, half)])


def fronts_of(cut: NDArray[np.int64], bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number of the `cut` tokens (2, n) to cut off the front, from 64 random bits for each pair (n,)."""
    fronts = np.zeros_like(cut)
    texts, rows = np.nonzero(cut)
    if len(rows):
        fronts[texts, rows] = count_heads(cut[texts, rows], bits[rows] + texts.astype(np.uint64))
    return fronts


def count_heads(tosses: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number of heads in `tosses` (n,) of a fair coin (n,); above 512 tosses, any number is equally likely.

    So a text that is far too long is not always cut down to its middle.
    """
    words = bits64(keys[:, None], np.arange(-(-min(int(tosses.max()), _BINOMIAL_LIMIT) // 64)))  # (n,) -> (n, W)
    coins = np.unpackbits(words.view(np.uint8), axis=1)  # -> (n, 64 W)
    heads = (coins * (np.arange(coins.shape[1]) < tosses[:, None])).sum(axis=1, dtype=np.int64)
    return np.where(tosses > _BINOMIAL_LIMIT, scale(words[:, 0], tosses + 1), heads)


class PairBatch(NamedTuple):
    """Pairs, padded."""

    tokens: NDArray[np.int64]
    """Ids (B, T)."""
    segments: NDArray[np.int64]
    """0 for <s>, A and its </s>, 1 for the second </s>, B and its </s>, 0 for padding (B, T)."""
    lengths: NDArray[np.int64]
    """Tokens of each pair, special ones included (B,)."""
    follows: NDArray[np.bool_]
    """True where B follows A (B,)."""
    begins: NDArray[np.bool_] | None = None
    """True where a sentence begins (B, T); only for masking whole words: the first word of a line has no space."""


def empty_batch(num_pairs: int, *, width: int, bos_id: int, pad_id: int) -> PairBatch:
    """A batch to be filled, (B, T) = (num_pairs, width)."""
    tokens = np.full((num_pairs, width), pad_id, dtype=np.int64)
    tokens[:, 0] = bos_id
    lengths = np.zeros(num_pairs, dtype=np.int64)
    return PairBatch(tokens, np.zeros_like(tokens), lengths, np.zeros(num_pairs, dtype=np.bool_))


def fill_pairs(
    batch: PairBatch, source: MmapTokens, pairs: Pairs, *, rows: NDArray[np.int64], eos_id: int, vocab_size: int
) -> None:
    """Write some pairs (n,) of one file into `rows` (n,) of a batch.

    Raises:
        ValueError: if an id is not in the vocabulary, or a line does not have exactly one </s>, at its end.
    """
    text, begins = _texts(source, pairs, eos_id=eos_id, vocab_size=vocab_size)
    a, b = pairs.lengths  # 2 x (n,)
    width = batch.tokens.shape[1]
    lengths = pairs.lengths.T.ravel()  # A, B, A, B, ... (2n,)
    first = np.stack([rows * width + 1, rows * width + 3 + a], axis=1).ravel()  # position of each text
    places = np.arange(len(text)) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    batch.tokens.ravel()[places] = text
    if batch.begins is not None:
        batch.begins.ravel()[places] = begins
    for column in (a + 1, a + 2, a + b + 3):
        batch.tokens[rows, column] = eos_id
    columns = np.arange(width)
    batch.segments[rows] = (columns >= (a + 2)[:, None]) & (columns <= (a + b + 3)[:, None])  # (n, T)
    batch.lengths[rows] = pairs.lengths.sum(axis=0) + NUM_SPECIALS
    batch.follows[rows] = pairs.follows


def _texts(source: MmapTokens, pairs: Pairs, *, eos_id: int, vocab_size: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The remaining texts of all pairs, end to end, A before B, and the beginnings of sentences in them."""
    starts, spans, contents = (values.T.ravel() for values in (pairs.starts, pairs.spans, pairs.contents))
    tokens = source.tokens
    ids = np.concatenate(
        [tokens[start : start + span] for start, span in zip(starts.tolist(), spans.tolist(), strict=True)]
    )
    check_ranges(ids, vocab_size=vocab_size, source=source, starts=starts, lengths=spans)
    is_text = ids != eos_id
    text: NDArray[Any] = ids[is_text]
    begins: NDArray[np.bool_] = np.concatenate([[True], ~is_text[:-1]])[is_text]
    if len(text) != int(contents.sum()):
        _refuse_lines(source, starts, spans, eos_id)
    fronts, lengths = pairs.fronts.T.ravel(), pairs.lengths.T.ravel()
    if len(text) > int(lengths.sum()):
        place = np.arange(len(text)) - np.repeat(np.cumsum(contents) - contents + fronts, contents)
        is_kept = (place >= 0) & (place < np.repeat(lengths, contents))
        text, begins = text[is_kept], begins[is_kept]
    return text, begins


def _refuse_lines(source: MmapTokens, starts: NDArray[np.int64], spans: NDArray[np.int64], eos_id: int) -> None:
    for start, stop in zip(starts.tolist(), (starts + spans).tolist(), strict=True):
        while start < stop:
            item = source.item_at(start)
            line = source[item]
            if line[-1] != eos_id or int((line == eos_id).sum()) != 1:
                raise ValueError(
                    f"{source.prefix}.bin, item {item} (line {item + 1} of the text): pairs need lines that end with "
                    f"</s> and have no other </s>, and this line has {int((line == eos_id).sum())}. Binarize the text "
                    "again, without </s> in it."
                )
            start += len(line)
