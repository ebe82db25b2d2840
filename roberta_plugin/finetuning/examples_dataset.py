"""A prepared split as one fairseq dataset of batches: last stage before training.

A batch holds examples of similar length, so that little is padded; the batches differ between epochs.

Shapes: B examples in a batch, S their sequences, T positions of the longest; P positions of a packed row; N examples of
the split.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.batches import padding_starts
from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.block_order import EpochOrder
from roberta_plugin.data.mmap_tokens import check_ranges
from roberta_plugin.data.rounding import round_up
from roberta_plugin.finetuning.prepared import PreparedSplit


class ExamplesDataset(BlockDataset):
    """Batches of a prepared split.

    A batch is {"id" (B,), "pass" (B,), "nsentences": B, "ntokens" (pads not counted), "npositions" (pads counted),
    "split": its name, "net_input": {"src_tokens" (S, T), "src_lengths" (S,), "has_padding"},
    "offsets" (B + 1,): example b has the rows offsets[b] to offsets[b + 1], "columns": {name: (B,) or (B, ...)}}; whole
    numbers are int64, others float64, and columns as they were written. A packed batch has one row (1, P) and, instead
    of has_padding, "packing": {"positions" (1, P), "cu_seqlens" (S + 1,), "max_seqlen"}.
    """

    def __init__(
        self,
        split: PreparedSplit,
        *,
        pad_id: int,
        vocab_size: int,
        seed: int,
        pad_to_multiple: int = 1,
        pack: bool = False,
        max_length: int = 0,
        most_counted: int | None = None,
    ) -> None:
        """Open a split.

        Arguments as in `MaskedLMDataset`. An example counts as `most_counted` positions if it takes more: with as many
        --max-tokens, it has a batch of its own.
        """
        self.split = split
        self.pad_id, self.vocab_size, self.seed = pad_id, vocab_size, seed
        self.pad_to_multiple, self.pack, self.max_length = pad_to_multiple, pack, max_length
        self.most_counted = most_counted
        self._columns = {name: np.asarray(values) for name, values in split.columns.items()}

    def __len__(self) -> int:
        return len(self.split)

    def order(self, epoch: int) -> EpochOrder:
        """The order of the examples in an epoch; the blocks of `BlockDataset.order` are examples."""
        return EpochOrder([len(self)], seed=self.seed, epoch=epoch, lengths_of=self.lengths_of)

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Upper bounds of the positions that the examples `indices` (n,) take in a batch (n,).

        In a packed row, the sum of their sequences. Otherwise their longest sequence times the largest number of
        sequences of any example, so that a batch stays within its limit whichever examples it holds.
        """
        room = self._room[indices]
        return room if self.most_counted is None else np.minimum(room, self.most_counted)

    @cached_property
    def _room(self) -> NDArray[np.int32]:
        """`lengths` of all examples (N,), without the bound of `most_counted`."""
        if len(self) == 0:
            return np.empty(0, dtype=np.int32)
        offsets, sizes = self.split.offsets, self.split.sequences.sizes
        if self.pack:
            return np.add.reduceat(sizes, offsets[:-1]).astype(np.int32)  # (S_all,) -> (N,)
        widths: NDArray[np.int32] = round_up(np.maximum.reduceat(sizes, offsets[:-1]), self.pad_to_multiple)
        return (widths * int(np.diff(offsets).max())).astype(np.int32)

    def make_batch(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> dict[str, Any]:
        """The batch of some examples, in arrays, as the class describes it."""
        counts = self.split.offsets[indices + 1] - self.split.offsets[indices]  # (B,)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(self.split.offsets[indices] - offsets[:-1], counts) + np.arange(offsets[-1])  # (S,)
        sequences = self.split.sequences
        lengths = sequences.sizes[rows].astype(np.int64)
        layout = self._packed(rows, lengths) if self.pack else self._padded(rows, lengths)
        check_ranges(
            layout["src_tokens"],
            vocab_size=self.vocab_size,
            source=sequences,
            starts=sequences.starts[rows],
            lengths=lengths,
        )
        return {
            "id": np.array(indices),
            "pass": np.array(passes),
            "nsentences": len(indices),
            "ntokens": int(lengths.sum()),
            "npositions": layout["src_tokens"].size,
            "split": self.split.name,
            "net_input": {**layout, "src_lengths": lengths},
            "offsets": offsets,
            "columns": {name: values[indices] for name, values in self._columns.items()},
        }

    def _padded(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[str, Any]:
        width = round_up(int(lengths.max()), self.pad_to_multiple)
        tokens = np.full((len(rows), width), self.pad_id, dtype=np.int64)
        for place, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            tokens[place, :length] = self.split.sequences[row]
        # Known on the host, so the model needs no device-to-host sync to find out.
        return {"src_tokens": tokens, "has_padding": bool(lengths.min() < width)}

    def _packed(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[str, Any]:
        """All sequences in one row; the rest of the row is cut into sequences of padding."""
        num_tokens = int(lengths.sum())
        width = round_up(num_tokens, self.pad_to_multiple)
        starts = np.cumsum(lengths) - lengths
        tokens = np.full((1, width), self.pad_id, dtype=np.int64)
        tokens[0, :num_tokens] = np.concatenate([self.split.sequences[row] for row in rows.tolist()])
        positions = np.zeros((1, width), dtype=np.int64)
        positions[0, :num_tokens] = np.arange(num_tokens) - np.repeat(starts, lengths)
        max_seqlen = max(self.max_length, int(lengths.max()))
        padding = padding_starts(num_tokens, width, max_seqlen=max_seqlen)
        cu_seqlens = np.array([*starts, *padding, width], dtype=np.int32)  # (S + 1,), more with padding
        packing = {"positions": positions, "cu_seqlens": cu_seqlens, "max_seqlen": max_seqlen}
        return {"src_tokens": tokens, "packing": packing}


class WindowsDataset(ExamplesDataset):
    """A split whose examples are documents; a long document has several windows."""

    @cached_property
    def _room(self) -> NDArray[np.int32]:
        """Upper bounds of the positions that documents take in a batch (N,).

        Let a document have at most K windows, of at most W positions. In a padded batch with a document of several
        windows, each document takes at most K * W positions. In a batch of documents of one window, each takes the
        longest window of the batch.
        """
        counts = np.diff(self.split.offsets)
        room = super()._room
        if self.pack or not len(self):
            return room
        widths = room // int(counts.max())
        return np.where(counts > 1, counts * widths.max(), widths).astype(np.int32)
