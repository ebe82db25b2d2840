"""Pairs of texts of one or several .bin files as one fairseq dataset of masked batches, for next-sentence prediction.

Last stage of the flow in `roberta_plugin/data/__init__.py` for these formats: connects pairs, dynamic_masking and
block_order. The texts of a pair depend on its pass, as its mask does.

Shapes: B pairs in a batch, T positions, n pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.data.batches import pad_width
from roberta_plugin.data.block_order import Addresses, EpochOrder
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset
from roberta_plugin.extensions.bert_pairs.head import NextSentenceHead
from roberta_plugin.extensions.bert_pairs.pairs import NUM_SPECIALS, PairBatch, PairSource, empty_batch, fill_pairs

FOLLOWS, IS_RANDOM = 0, 1
"""Classes of next-sentence prediction, numbered as in BERT."""


class PairDataset(MaskedLMDataset):
    """Masked batches of the pairs of all sources.

    A batch has the entries of `MaskedLMDataset` and, if options ask for them:

        net_input       segments (B, T): 0 or 1; for a packed row (1, T)
        sequence_labels {"nsp" (B,)}: 0 where the second text follows the first, 1 where it is random
        predicted       the first entry for each pair is <s>, with the label pad: next-sentence prediction needs it
    """

    are_equal_in_length = False

    def __init__(
        self,
        sources: Sequence[PairSource],
        masker: Masker,
        *,
        eos_id: int,
        with_segments: bool,
        with_next_sentence: bool,
        **options: Any,
    ) -> None:
        """Join the sources; `options` are options of `MaskedLMDataset`."""
        super().__init__([], masker, **options)
        self.sources = list(sources)
        self.eos_id, self.with_segments, self.with_next_sentence = eos_id, with_segments, with_next_sentence
        self._num_blocks = [len(source) for source in sources]
        self._offsets = np.concatenate([[0], np.cumsum(self._num_blocks)])

    def _seed_of(self, source: PairSource) -> tuple[int, int]:
        """Seed of the random numbers of one file."""
        return self._seed_of_shard, self.sources.index(source)

    @property
    @override
    def longest(self) -> int:
        return max((source.longest for source in self.sources if len(source)), default=0)

    @override
    def order(self, epoch: int) -> EpochOrder:
        return self._order(epoch, self.lengths_of if self.sort_by_length else None)

    def lengths_of(self, addresses: Addresses) -> NDArray[np.int32]:
        """Tokens of the pairs at these addresses (n,), special ones included."""
        lengths = np.empty(len(addresses.indices), dtype=np.int32)
        passes = self.masker.recipe.mask_numbers(addresses.passes)
        for source, rows, local in self._by_source(addresses.indices):
            pairs = source.pairs(local, passes=passes[rows], seed=self._seed_of(source))
            lengths[rows] = pairs.lengths.sum(axis=0) + NUM_SPECIALS
        return lengths

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Tokens of the pairs `indices` (n,) in their first pass."""
        return self.lengths_of(Addresses(indices, np.ones_like(indices)))

    def make_batch(
        self, passes: NDArray[np.int64], indices: NDArray[np.int64], *, updates: int | None = None
    ) -> dict[str, Any]:
        """The masked batch of some pairs, in arrays, as the class describes. `updates`: see `Masker.share`."""
        pairs = self._pairs(passes, indices)
        batch = self._masked_batch(
            pairs.tokens,
            pairs.lengths,
            passes=passes,
            indices=indices,
            begins=pairs.begins,
            keeps_first=self.with_next_sentence,
            updates=updates,
        )
        if self.with_segments:
            segments = pairs.segments
            if self.pack:
                row = np.zeros_like(batch["net_input"]["src_tokens"])
                is_token = np.arange(segments.shape[1]) < pairs.lengths[:, None]  # (B, T)
                row[0, : batch["ntokens"]] = segments[is_token]
                segments = row
            batch["net_input"]["segments"] = segments
        if self.with_next_sentence:
            batch["sequence_labels"] = {NextSentenceHead.task: np.where(pairs.follows, FOLLOWS, IS_RANDOM)}
        return batch

    def _pairs(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> PairBatch:
        texts = self.masker.recipe.mask_numbers(passes)  # static masks come with the same pairs
        parts = [
            (source, rows, source.pairs(local, passes=texts[rows], seed=self._seed_of(source)))
            for source, rows, local in self._by_source(indices)
        ]
        longest = max(int(pairs.lengths.sum(axis=0).max()) for _, _, pairs in parts) + NUM_SPECIALS
        width = pad_width(longest - 1, multiple=1 if self.pack else self.pad_to_multiple)
        batch = empty_batch(len(indices), width=width, bos_id=self.bos_id, pad_id=self.pad_id)
        if self.masker.recipe.whole_words:
            batch = batch._replace(begins=np.zeros(batch.tokens.shape, dtype=np.bool_))
        for source, rows, pairs in parts:
            fill_pairs(batch, source.tokens, pairs, rows=rows, eos_id=self.eos_id, vocab_size=self.vocab_size)
        return batch
