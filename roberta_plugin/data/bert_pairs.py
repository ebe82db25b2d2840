"""BERT's own pairs: those that create_pretraining_data.py (Devlin et al. 2019) draws, for --bert-pairs.

Stage of the flow in `roberta_plugin/data/__init__.py`, in place of `pair_chunks` and `pairs`. BERT goes through each
document in order and draws as it goes: a length for the document, the end of A, whether B follows. Text that a random
B leaves unused begins the next chunk. So the number of pairs, and of random ones, depends on the draws; therefore all
of them are made once and kept in a table (25 bytes a pair). BERT goes through the text ten times and
writes the pairs of all passes to its files; an epoch is all of them.

The draws are BERT's, one by one and in its order (without its shuffling of the documents), except those of
`truncate_seq_pair`: `pairs.shorten` gives the remaining lengths, and `pairs.fronts_of` draws the tokens to cut off.

Shapes: n pairs, D documents, I items.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from random import Random
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.array_files import take_mapped
from roberta_plugin.data.block_tables import describe_table, open_table, write_table
from roberta_plugin.data.counter_random import bits64, make_keys
from roberta_plugin.data.mmap_tokens import MmapTokens, check_sizes
from roberta_plugin.data.pair_chunks import Targets, find_documents
from roberta_plugin.data.pairs import NUM_SPECIALS, Pairs, cut_texts

_ITEMS_WITHOUT_TABLE = 2**16  # up to this many, times the draws, need no file
_OF_FRONTS = 4  # beside the purposes of `block_order`, `dynamic_masking` and `pairs`
_TRIES = 10  # BERT's, to find another document
_TYPES = {"a": "<i8", "a_size": "<i4", "b": "<i8", "b_size": "<i4", "follows": "u1"}


class Drawn(NamedTuple):
    """Pairs in order: first item and number of items of A and of B (n,), and whether B follows A (n,)."""

    a: array[int]
    a_size: array[int]
    b: array[int]
    b_size: array[int]
    follows: array[int]


class BertPairs:
    """The pairs of one .bin file, in place of a `PairSource`; they are the same in every pass."""

    def __init__(self, tokens: MmapTokens, arrays: dict[str, NDArray[Any]], *, longest_text: int) -> None:
        self.tokens, self._arrays, self._longest_text = tokens, arrays, longest_text
        self.num_following = int(np.count_nonzero(arrays["follows"]))

    def __len__(self) -> int:
        return len(self._arrays["a"])

    @property
    def longest(self) -> int:
        """No pair has more tokens, special ones included."""
        return self._longest_text + NUM_SPECIALS

    def pairs(self, indices: NDArray[np.int64], *, passes: NDArray[np.int64], seed: tuple[int, ...]) -> Pairs:
        """The pairs `indices` (n,); `passes` change nothing."""
        a, a_size, b, b_size, follows = (take_mapped(self._arrays[name], indices) for name in _TYPES)
        items = np.stack([a, b]).astype(np.int64)
        ends = items + np.stack([a_size, b_size])
        bits = bits64(make_keys(*seed, _OF_FRONTS, indices=np.zeros(1, dtype=np.int64)), indices)
        return cut_texts(self.tokens, items, ends, bits, longest=self._longest_text, follows=follows.astype(np.bool_))


def open_bert_pairs(tokens: MmapTokens, *, targets: Targets, num_draws: int, seed: int) -> BertPairs:
    """Draw the pairs of `num_draws` passes over a .bin file, or open the table of an earlier run.

    Drawing needs 24 bytes of memory for each line, and takes about a second for a million lines and one pass.

    Raises:
        ValueError: if there are fewer than two documents, or the part of the .idx that is read is damaged.
    """

    def draws() -> Iterator[dict[str, NDArray[Any]]]:
        check_sizes(tokens)
        first, size = find_documents(tokens.sizes)
        if len(first) < 2:
            raise ValueError(
                f"--bert-pairs takes the second text of half of its pairs from another document, but {tokens.prefix} "
                f"has only {len(first)}: binarize text with a blank line after each document."
            )
        before = np.concatenate([[0], np.cumsum(tokens.sizes, dtype=np.int64)]) - np.arange(tokens.num_items + 1)
        for number in range(num_draws):
            drawn = draw_pairs(before, first, size, targets=targets, rng=Random(f"{seed} {number}"))
            yield {name: np.asarray(values) for name, values in drawn._asdict().items()}

    types = {name: np.dtype(dtype) for name, dtype in _TYPES.items()}
    if tokens.num_items * num_draws <= _ITEMS_WITHOUT_TABLE:
        parts = list(draws())
        arrays = {name: np.concatenate([part[name].astype(types[name]) for part in parts]) for name in types}
    else:
        made_of = describe_table(tokens, targets.longest, f"bert-pairs-{num_draws}-{targets.short_prob:g}-{seed}")

        def write(file: IO[bytes]) -> None:
            write_table(file, made_of, {}, types, draws())

        arrays = open_table(made_of, tokens.prefix, write).arrays
    return BertPairs(tokens, arrays, longest_text=targets.longest)


def draw_pairs(
    before: NDArray[np.int64], first: NDArray[np.int64], size: NDArray[np.int64], *, targets: Targets, rng: Random
) -> Drawn:
    """One pass of `create_instances_from_document` over all documents.

    Args:
        before: tokens of text before each item, and in all (I + 1,).
        first: first sentence of each document (D,).
        size: number of sentences of each document (D,).
        targets: lengths of pairs; its `short_prob` is that of a document here.
        rng: the source of all draws.
    """
    drawn = Drawn(array("q"), array("i"), array("q"), array("i"), array("b"))
    tokens_before, firsts, sizes = before.data, first.tolist(), size.tolist()  # single elements are read faster so
    for document, (item, num_sentences) in enumerate(zip(firsts, sizes, strict=True)):
        stop = item + num_sentences
        target = targets.longest
        if rng.random() < targets.short_prob:
            target = rng.randint(2, target)
        while item < stop:
            end = bisect_left(tokens_before, tokens_before[item] + target, item + 1, stop)
            a_end = item + 1 if end == item + 1 else item + rng.randint(1, end - item - 1)
            follows = end > item + 1 and rng.random() >= 0.5
            b, b_end = a_end, end
            if not follows:
                for _ in range(_TRIES):
                    other = rng.randint(0, len(firsts) - 1)
                    if other != document:
                        break
                b = firsts[other] + rng.randint(0, sizes[other] - 1)
                wanted = target - (tokens_before[a_end] - tokens_before[item])
                b_end = bisect_left(tokens_before, tokens_before[b] + wanted, b + 1, firsts[other] + sizes[other])
                end = a_end  # the rest begins the next chunk
            for values, value in zip(drawn, (item, a_end - item, b, b_end - b, follows), strict=True):
                values.append(value)
            item = end
    return drawn
