"""Blocks of one or several .bin files as one fairseq dataset of masked batches.

Last stage of the flow in `roberta_plugin/data/__init__.py`: wires mmap_tokens, blocks, batches, dynamic_masking and
block_order together.

The mask of a block depends on its pass, the number of times that the block has been visited.

Shapes: B blocks in a batch, T positions, N blocks in the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.data.batches import PREDICTED_MULTIPLE, Rounding, fill_rows, pack, pad_width
from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.block_order import Addresses, EpochOrder
from roberta_plugin.data.blocks import Blocks
from roberta_plugin.data.dynamic_masking import MaskedBatch, Masker
from roberta_plugin.data.mmap_tokens import MmapTokens, check_ranges


class SplitFile(NamedTuple):
    """One .bin file, cut into blocks."""

    tokens: MmapTokens
    blocks: Blocks


class MaskedLMDataset(BlockDataset):
    """Masked batches of the blocks of all sources.

    A batch is a dict; arrays are int64 tensors:

        id, pass        (B,)    numbers of the blocks, and the number of times each has been visited
        nsentences      B
        ntokens         tokens, pads not counted
        npairs          pairs of tokens within a block, for the FLOPs of attention
        net_input       src_tokens (B, T), src_lengths (B,), has_padding
        target          (B, T)  the original id where a token is predicted, else pad
        predicted       positions, labels (B, Q): the targets, gathered; number: of predicted positions

    A packed batch has one row (B = 1) and, instead of has_padding, packing: positions (1, T), cu_seqlens (S + 1,),
    max_seqlen; its predicted has cu_seqlens and max_seqlen too. See `packing`.
    """

    def __init__(
        self,
        sources: Sequence[SplitFile],
        masker: Masker,
        *,
        bos_id: int,
        pad_id: int,
        vocab_size: int,
        seed: int,
        mixture: Sequence[tuple[int, int]] | None = None,
        shard: int = 0,
        num_shards: int = 1,
        pad_to_multiple: int = 1,
        pack: bool = False,
        sort_by_length: bool | None = None,
        max_length: int = 0,
    ) -> None:
        """Join the sources.

        Args:
            sources: the files and their blocks.
            masker: makes the masks.
            bos_id: id of <s>, which begins every block.
            pad_id: id of <pad>.
            vocab_size: ids must lie below it.
            seed: seed of the order and of the masks.
            mixture: for each corpus (one or several sources), its number of blocks and how many of them an epoch
                takes (default: all blocks of all sources).
            shard: which of `num_shards` data folders this is; each serves every num_shards-th epoch.
            num_shards: how many data folders take turns.
            pad_to_multiple: T, or the length of the row with `pack`, is a multiple of this.
            pack: lay the blocks of a batch end to end in one row instead of padding them.
            sort_by_length: give blocks of similar length to the same batch (default: unless they are packed).
            max_length: most tokens in a block, <s> included; max_seqlen of packed rows.
        """
        self.sources: list[Any] = list(sources)  # other things in subclasses
        self.masker = masker
        self.bos_id, self.pad_id, self.vocab_size = bos_id, pad_id, vocab_size
        self.seed = seed
        self.mixture = mixture
        self.shard, self.num_shards = shard, num_shards
        self.pad_to_multiple = pad_to_multiple
        self.pack, self.max_length = pack, max_length
        self.sort_by_length = not pack if sort_by_length is None else sort_by_length
        self._num_blocks = [len(source.blocks) for source in self.sources]
        self._offsets = np.concatenate([[0], np.cumsum(self._num_blocks)])

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def visit(self, epoch: int) -> int:
        """Number of epochs that this data folder has served when `epoch` ends: all, unless several take turns."""
        return (epoch - 1) // self.num_shards + 1

    @override
    def order(self, epoch: int) -> EpochOrder:
        return self._order(epoch, self.lengths_of if self.sort_by_length and not self.are_equal_in_length else None)

    def _order(self, epoch: int, lengths_of: Callable[[Addresses], NDArray[np.int32]] | None) -> EpochOrder:
        corpora = self.mixture or [(size, size) for size in self._num_blocks]
        return EpochOrder(
            [size for size, _ in corpora],
            seed=self._seed_of_shard,
            epoch=self.visit(epoch),
            counts=[count for _, count in corpora],
            lengths_of=lengths_of,
        )

    @cached_property
    @override
    def are_equal_in_length(self) -> bool:  # type: ignore[override]
        return all(source.blocks.are_equal_in_length for source in self.sources)

    @property
    def longest(self) -> int:
        """Tokens of the longest block with its <s>."""
        return max((source.blocks.longest + 1 for source in self.sources if len(source.blocks)), default=0)

    @property
    def _seed_of_shard(self) -> int:
        return self.seed * self.num_shards + self.shard

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Tokens of the blocks `indices` (n,), <s> included."""
        lengths = np.empty(len(indices), dtype=np.int32)
        for source, rows, local in self._by_source(indices):
            lengths[rows] = source.blocks.lengths(local) + 1
        return lengths

    def make_batch(
        self, passes: NDArray[np.int64], indices: NDArray[np.int64], *, updates: int | None = None
    ) -> dict[str, Any]:
        """The masked batch of some blocks, in arrays; the class describes it. `updates`: see `Masker.share`."""
        tokens, lengths = self._gather(indices)
        return self._masked_batch(tokens, lengths, passes=passes, indices=indices, updates=updates)

    def _masked_batch(
        self,
        tokens: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        passes: NDArray[np.int64],
        indices: NDArray[np.int64],
        keeps_first: bool = False,
        begins: NDArray[np.bool_] | None = None,
        updates: int | None = None,
    ) -> dict[str, Any]:
        """The batch of tokens (B, T); with `keeps_first`, the first entry of `predicted` is <s>, without a label.

        `begins` (B, T) and `updates`: see `Masker.mask`.
        """
        masked = self.masker.mask(
            tokens, seed=self._seed_of_shard, passes=passes, indices=indices, begins=begins, updates=updates
        )
        if keeps_first:
            masked = masked.with_first(pad_id=self.pad_id)
        is_kept = np.arange(masked.labels.shape[1]) < int(keeps_first)  # (Q,)
        batch = {
            "id": np.array(indices),
            "pass": np.array(passes),
            "nsentences": len(indices),
            "ntokens": int(lengths.sum()),
            "npairs": int((lengths * lengths).sum()),
            **(self._pack(masked, lengths, is_kept) if self.pack else self._pad(masked, lengths)),
        }
        batch["net_input"]["src_lengths"] = lengths
        batch["predicted"]["number"] = masked.num_predicted
        return batch

    def _pad(self, masked: MaskedBatch, lengths: NDArray[np.int64]) -> dict[str, Any]:
        # Known on the host, so the model needs no device-to-host sync to find out.
        has_padding = bool(lengths.min() < masked.tokens.shape[1])
        return {
            "net_input": {"src_tokens": masked.tokens, "has_padding": has_padding},
            "target": masked.targets,
            "predicted": {"positions": masked.positions, "labels": masked.labels},
        }

    def _pack(self, masked: MaskedBatch, lengths: NDArray[np.int64], is_kept: NDArray[np.bool_]) -> dict[str, Any]:
        max_seqlen = max(self.max_length, int(lengths.max()))
        multiple = self.pad_to_multiple
        row = pack(masked, lengths, pad_id=self.pad_id, multiple=multiple, max_seqlen=max_seqlen, is_kept=is_kept)
        predicted = {"positions": row.predicted, "labels": row.labels, "cu_seqlens": row.cu_seqlens_q}
        rest = max(PREDICTED_MULTIPLE, Rounding.of(multiple).predicted)
        return {
            "net_input": {
                "src_tokens": row.tokens,
                "packing": {"positions": row.positions, "cu_seqlens": row.cu_seqlens, "max_seqlen": max_seqlen},
            },
            "target": row.targets,
            # The rounded-up rest of `predicted` counts to the last block. A bound of the options alone: a number that
            # changes from batch to batch would make torch.compile compile again.
            "predicted": {**predicted, "max_seqlen": max_seqlen + rest},
        }

    def _gather(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens (B, T) of some blocks, <s> first, and the length of each (B,)."""
        parts = [(source, rows, *source.blocks.bounds(local)) for source, rows, local in self._by_source(indices)]
        longest = max(int(lengths.max()) for _, _, _, lengths in parts)
        multiple = 1 if self.pack else self.pad_to_multiple  # of packed rows, the row is rounded up
        batch = np.full((len(indices), pad_width(longest, multiple=multiple)), self.pad_id)
        batch[:, 0] = self.bos_id
        all_lengths = np.empty(len(indices), dtype=np.int64)
        for source, rows, starts, lengths in parts:
            fill_rows(batch, source.tokens.tokens, rows=rows, starts=starts, lengths=lengths)
            all_lengths[rows] = lengths + 1
            check_ranges(batch, vocab_size=self.vocab_size, source=source.tokens, starts=starts, lengths=lengths)
        return batch, all_lengths

    def _by_source(self, indices: NDArray[np.int64]) -> Iterator[tuple[Any, NDArray[np.int64], NDArray[np.int64]]]:
        """Each source that holds some of the blocks, their rows in `indices`, and their numbers in the source."""
        if len(self.sources) == 1:
            yield self.sources[0], np.arange(len(indices)), indices
            return
        which = np.searchsorted(self._offsets, indices, side="right") - 1
        for number in np.unique(which).tolist():
            rows = np.flatnonzero(which == number)
            yield self.sources[number], rows, indices[rows] - self._offsets[number]
