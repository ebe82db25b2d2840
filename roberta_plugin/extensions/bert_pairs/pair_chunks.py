"""Lines of a .bin -> documents and chunks, the pieces of text from which pairs are made.

Stage of the flow in `roberta_plugin/data/__init__.py`, for --input-format segment-pair and sentence-pair. A line is a
sentence, and a blank line ends a document. A chunk is a run of sentences of one document that `pairs` makes into one
pair of consecutive segments, or into the first segments of two pairs. Every sentence belongs to exactly one chunk.

    segment-pair    sentences until there are `target` tokens, or the document ends: BERT's `current_chunk`
    sentence-pair   two sentences; the last of an odd number is a separate chunk

Lengths are in tokens of text: the </s> of each line does not count, because pairs do not contain it.

Example: documents of sentences with 4, 3, 6 and 5 tokens and one of 2 tokens, a blank line after each; items 0 to 6:

    segment-pair, target 7   joint chunks [0, 2) [2, 4)    single chunk [5, 6)
    sentence-pair            joint chunks [0, 2) [2, 4)    single chunk [5, 6)

A table is made once, like the tables of `block_tables`: 14 bytes for each chunk of many sentences, 8 for each single
sentence, 12 for each document. A table of sentence-pair only has 28 bytes for each document.

Shapes: D documents, J chunks of two sentences or more (joint), K chunks of one sentence (single), I items, n chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.array_files import take_mapped
from roberta_plugin.data.block_tables import describe_table, open_table, write_table
from roberta_plugin.data.blocks import Sizes, windows
from roberta_plugin.data.counter_random import bits64, make_keys
from roberta_plugin.data.mmap_tokens import MmapTokens, check_sizes

PairFormat = Literal["segment-pair", "sentence-pair"]
_ITEMS_WITHOUT_TABLE = 2**18  # so many items are cut in a moment and need no file
_TARGET = 1  # purposes of random bits: part of their key
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


class Counts(NamedTuple):
    """Counts of the lines of a .bin."""

    num_sentences: int
    num_tokens: int
    """Tokens of the sentences, </s> not counted."""
    num_empty_documents: int
    """Blank lines that follow another one or begin the file."""
    num_single_documents: int
    """Documents of one sentence."""
    num_long_sentences: int
    """Sentences longer than a whole pair may be."""


class Chunks:
    """The documents and chunks of one .bin file."""

    def __init__(
        self, arrays: dict[str, NDArray[Any]], counts: Counts, *, pair_format: PairFormat, targets: Targets
    ) -> None:
        self._arrays, self.counts, self.pair_format, self.targets = arrays, counts, pair_format, targets
        self.documents, self.document_sizes = arrays["documents"], arrays["document_sizes"]
        if pair_format == "segment-pair":
            self.num_joint, self.num_single = len(arrays["joint"]), len(arrays["single"])
        else:
            last = len(self.documents)
            self.num_joint = int(arrays["pairs_before"][last]) if last else 0
            self.num_single = int(arrays["odd_before"][last]) if last else 0

    def joint(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First item, number of sentences and document of some joint chunks (n,)."""
        if self.pair_format == "segment-pair":
            first = take_mapped(self._arrays["joint"], numbers).astype(np.int64)
            return first, take_mapped(self._arrays["joint_sizes"], numbers).astype(np.int64), self._documents_of(first)
        document = np.searchsorted(self._arrays["pairs_before"], numbers, side="right") - 1
        within = numbers - take_mapped(self._arrays["pairs_before"], document)
        return take_mapped(self.documents, document) + 2 * within, np.full_like(numbers, 2), document

    def single(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Item and document of some single chunks (n,)."""
        if self.pair_format == "segment-pair":
            first = take_mapped(self._arrays["single"], numbers).astype(np.int64)
            return first, self._documents_of(first)
        document = np.searchsorted(self._arrays["odd_before"], numbers, side="right") - 1
        return take_mapped(self.documents, document) + take_mapped(self.document_sizes, document) - 1, document

    def _documents_of(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.documents, items, side="right") - 1


class Targets(NamedTuple):
    """Target length of a pair in tokens of text: `longest`, or with probability `short_prob` 2 to `longest`.

    `short_prob` is BERT's short_seq_prob. BERT draws for each document; here, each chunk draws by its first item.
    `pairs` describes the consequences.
    """

    longest: int
    short_prob: float

    def draw(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The target of a chunk that begins with each of the items (n,), the same in every run."""
        if not self.short_prob:
            return np.full(len(items), self.longest, dtype=np.int64)
        bits = bits64(make_keys(_TARGET, indices=np.zeros(1, dtype=np.int64)), items)
        short = 2 + (((bits >> _HALF) * np.uint64(self.longest - 1)) >> _HALF).astype(np.int64)
        return np.where((bits & _LOW) < round(self.short_prob * 2**32), short, self.longest)


def open_chunks(tokens: MmapTokens, *, pair_format: PairFormat, targets: Targets) -> Chunks:
    """Cut a .bin file into chunks, or open the table of an earlier run.

    Raises:
        ValueError: if the data have no pairs: too few documents, or no document of two sentences.
    """
    if tokens.num_items <= _ITEMS_WITHOUT_TABLE:
        check_sizes(tokens)
        arrays, counts = make_chunks(tokens.sizes, pair_format=pair_format, targets=targets)
    else:
        name = pair_format + (
            f"-{targets.short_prob:g}" if pair_format == "segment-pair" and targets.short_prob else ""
        )
        made_of = describe_table(tokens, targets.longest, name)
        table = open_table(
            made_of, tokens.prefix, lambda file: _write(file, made_of, tokens, pair_format=pair_format, targets=targets)
        )
        arrays, counts = table.arrays, Counts(**table.numbers)
    chunks = Chunks(arrays, counts, pair_format=pair_format, targets=targets)
    _check(chunks, tokens)
    return chunks


def _check(chunks: Chunks, tokens: MmapTokens) -> None:
    name = f"--input-format {chunks.pair_format}"
    if len(chunks.documents) < 2:
        raise ValueError(
            f"{name} takes the second text of half of its pairs from another document, but {tokens.prefix} has only "
            f"{len(chunks.documents)}: binarize text with a blank line after each document, or use --input-format "
            "full-sentences."
        )
    if not chunks.num_joint:
        raise ValueError(
            f"{name} needs documents of several sentences, one a line, but in {tokens.prefix} each document is one "
            f"line, or each line has {chunks.targets.longest} tokens or more: binarize the text with `roberta binarize "
            "--split-sentences`, or use --input-format full-sentences."
        )


def make_chunks(sizes: Sizes, *, pair_format: PairFormat, targets: Targets) -> tuple[dict[str, NDArray[Any]], Counts]:
    """The arrays of a small corpus, from the tokens of each item (I,), </s> included; see `Chunks`."""
    counts = dict.fromkeys(Counts._fields, 0)
    types = _types(pair_format)
    parts = list(_parts(sizes, counts, pair_format=pair_format, targets=targets))
    arrays = {
        name: np.concatenate([np.empty(0, dtype), *(part[name].astype(dtype) for part in parts)])
        for name, dtype in types.items()
    }
    return arrays, Counts(**counts)


def _types(pair_format: PairFormat) -> dict[str, np.dtype[Any]]:
    number, count = np.dtype("<i8"), np.dtype("<i4")
    types: dict[str, np.dtype[Any]] = {"documents": number, "document_sizes": count}
    if pair_format == "segment-pair":
        return {**types, "joint": number, "joint_sizes": count, "single": number}
    return {**types, "pairs_before": number, "odd_before": number}


def _write(
    file: IO[bytes], made_of: dict[str, Any], tokens: MmapTokens, *, pair_format: PairFormat, targets: Targets
) -> None:
    check_sizes(tokens)
    counts = dict.fromkeys(Counts._fields, 0)
    parts = _parts(tokens.sizes_on_disk, counts, pair_format=pair_format, targets=targets)
    write_table(file, made_of, counts, _types(pair_format), parts)


def _parts(
    sizes: Sizes, counts: dict[str, int], *, pair_format: PairFormat, targets: Targets
) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays of `_types` in parts, from left to right; `counts` grows with them."""
    pairs_before = odd_before = 0
    for start, window, ends_file in _whole_documents(sizes):
        first, num_sentences = find_documents(window)
        num_tokens = window.astype(np.int64) - 1
        counts["num_sentences"] += int(num_sentences.sum())
        counts["num_tokens"] += int(num_tokens.sum())
        counts["num_empty_documents"] += int((window == 1).sum()) - len(first) + int(ends_file and window[-1] != 1)
        counts["num_single_documents"] += int((num_sentences == 1).sum())
        counts["num_long_sentences"] += int((num_tokens > targets.longest).sum())
        part = {"documents": start + first, "document_sizes": num_sentences}
        if pair_format == "segment-pair":
            chunks, chunk_sizes = _cut_documents(
                num_tokens, first + num_sentences, targets.draw(start + np.arange(len(window)))
            )
            is_single = chunk_sizes == 1
            part["joint"], part["joint_sizes"] = start + chunks[~is_single], chunk_sizes[~is_single]
            part["single"] = start + chunks[is_single]
        else:
            pairs, odd = pairs_before + np.cumsum(num_sentences // 2), odd_before + np.cumsum(num_sentences % 2)
            part["pairs_before"] = np.concatenate([[0] if start == 0 else [], pairs])
            part["odd_before"] = np.concatenate([[0] if start == 0 else [], odd])
            if len(first):
                pairs_before, odd_before = int(pairs[-1]), int(odd[-1])
        yield part


def _whole_documents(sizes: Sizes) -> Iterator[tuple[int, NDArray[np.int32], bool]]:
    """Windows of whole documents: first item, sizes (n,), and True for the last window."""
    rest: list[NDArray[np.int32]] = []
    begin = 0
    for start, window in windows(sizes):
        blank = np.flatnonzero(window == 1)
        if start + len(window) < len(sizes):
            if len(blank):
                cut = int(blank[-1]) + 1
                yield begin, np.concatenate([*rest, window[:cut]]), False
                rest, begin = [window[cut:]], start + cut
            else:
                rest.append(window)
        else:
            rest.append(window)
    if rest and sum(map(len, rest)):
        yield begin, np.concatenate(rest), True


def find_documents(sizes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First item (D,) and number of sentences (D,) of the documents that are not empty.

    Example: sizes 4 5 1 1 3 -> [0, 4] and [2, 1].
    """
    is_sentence = np.concatenate([[False], sizes != 1, [False]])
    first = np.flatnonzero(is_sentence[1:] & ~is_sentence[:-1])
    return first, np.flatnonzero(is_sentence[:-1] & ~is_sentence[1:]) - first


def _cut_documents(
    num_tokens: NDArray[np.int64], document_ends: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First item (n,) and number of sentences (n,) of the chunks of segment-pair.

    As in `blocks`, one binary search finds for each item where a chunk that begins there would end; Python then only
    follows the chunks, one step each.

    Args:
        num_tokens: tokens of each item (I,), 0 for a blank line.
        document_ends: the item after the last sentence of each document (D,), which is a blank line or the end.
        targets: tokens after which a chunk that begins with an item ends (I,).
    """
    ends = np.cumsum(num_tokens)
    chunk_ends = np.searchsorted(ends, ends - num_tokens + targets, side="left") + 1
    of_document = np.searchsorted(document_ends, np.arange(len(num_tokens)), side="right")
    if len(document_ends):
        chunk_ends = np.minimum(chunk_ends, document_ends[np.minimum(of_document, len(document_ends) - 1)])
    numbers = np.arange(len(num_tokens) + 1)
    is_blank = np.append(num_tokens == 0, False)
    resumes = np.minimum.accumulate(np.where(is_blank, len(num_tokens), numbers)[::-1])[::-1]
    end_of, resume_at = chunk_ends.data, resumes.data
    firsts, stops = [], []
    item = resume_at[0]
    while item < len(num_tokens):
        end = end_of[item]
        firsts.append(item)
        stops.append(end)
        item = resume_at[end]
    first = np.array(firsts, dtype=np.int64)
    return first, np.array(stops, dtype=np.int64) - first
