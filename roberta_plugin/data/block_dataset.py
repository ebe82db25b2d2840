"""What all our datasets have in common for fairseq: whole batches by the address of their blocks.

Stage of the flow in `roberta_plugin/data/__init__.py`. A block (a piece of text, or an example of fine-tuning) is
addressed by (pass, index): its pass tells how often it has come up, and travels with the batch, because fairseq's
data-loader workers outlive epochs and never hear of a new one.

Shapes: B blocks in a batch, N blocks in the dataset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from numpy.typing import NDArray

from roberta_plugin.data.block_order import EpochOrder, cut_batches


class BlockBatch:
    """Blocks `start` to `stop` of an epoch's order: sized, and iterable over addresses (pass, index)."""

    __slots__ = ("_order", "_start", "_stop")

    def __init__(self, order: EpochOrder, start: int, stop: int) -> None:
        self._order, self._start, self._stop = order, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def indices(self) -> NDArray[np.int64]:
        """Global index of each block (B,)."""
        return self._order.indices[self._start : self._stop]

    @property
    def passes(self) -> NDArray[np.int64]:
        """How many times each block has come up, this time included (B,)."""
        return self._order.passes[self._start : self._stop]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.passes.tolist(), self.indices.tolist(), strict=True)

    def __reduce__(self) -> tuple[type[BlockBatch], tuple[EpochOrder, int, int]]:
        # To a data-loader worker goes this batch alone, not the order of the whole epoch.
        return BlockBatch, (EpochOrder(self.indices.copy(), self.passes.copy()), 0, len(self))


class BlockDataset(FairseqDataset, ABC):  # type: ignore[misc]
    """A dataset that makes whole batches.

    A batch has at least "id" and "pass" (B,); its arrays become tensors.
    """

    epoch = 1
    pack = False
    """Whether the blocks of a batch lie end to end in one row instead of being padded."""
    pad_to_multiple = 1
    """The width of a batch is a multiple of this."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def order(self, epoch: int) -> EpochOrder:
        """The blocks of `epoch` (1-based) in the order of their visit; a pure function of (seed, epoch)."""

    def batches(
        self,
        epoch: int,
        *,
        first_block: int = 0,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        required_batch_size_multiple: int = 1,
    ) -> list[BlockBatch]:
        """The batches of `epoch` (1-based) from its block number `first_block` on; a pure function of (seed, epoch).

        Raises:
            ValueError: if no limit is given, or one block alone exceeds `max_tokens`.
        """
        order = self.order(epoch)
        order = EpochOrder(order.indices[first_block:], order.passes[first_block:])
        bounds = cut_batches(
            self.lengths(order.indices),
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=1 if self.pack else required_batch_size_multiple,
            padded=not self.pack,
            multiple=self.pad_to_multiple,
        ).tolist()
        return [BlockBatch(order, start, stop) for start, stop in pairwise(bounds)]

    @abstractmethod
    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Tokens of the blocks `indices` (n,)."""

    @abstractmethod
    def make_batch(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> dict[str, Any]:
        """The batch of the blocks `indices` (B,) in their passes (B,), in arrays."""

    def set_epoch(self, epoch: int) -> None:
        """Remember the epoch for blocks that are asked for by plain index."""
        self.epoch = epoch

    def visit(self, epoch: int) -> int:
        """How many epochs this dataset has served when `epoch` ends."""
        return epoch

    def __getitems__(self, batch: BlockBatch | Sequence[tuple[int, int]]) -> dict[str, Any]:
        """A whole batch at once: what torch's data loader asks for where a dataset offers it."""
        if not len(batch):
            return {}
        if isinstance(batch, BlockBatch):
            return _as_tensors(self.make_batch(batch.passes, batch.indices))
        passes, indices = np.array(list(batch), dtype=np.int64).T
        return _as_tensors(self.make_batch(passes, indices))

    def __getitem__(self, address: tuple[int, int] | int) -> dict[str, Any]:
        """The batch of one block, addressed by (pass, index), or by its index in the epoch of `set_epoch`."""
        number, index = address if isinstance(address, tuple) else (self.visit(self.epoch), int(address))
        return self.__getitems__([(number, index)])

    def collater(self, samples: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
        """Pass a ready batch on; join batches of single blocks, which fairseq collects for its dummy batch."""
        if isinstance(samples, dict):
            return samples
        return self.__getitems__([(int(sample["pass"]), int(sample["id"])) for sample in samples])

    @property
    def sizes(self) -> NDArray[np.int32]:
        """Tokens of every block (N,)."""
        return self.lengths(np.arange(len(self)))

    def num_tokens(self, index: int) -> int:
        """Tokens of one block."""
        return int(self.lengths(np.array([index]))[0])

    def size(self, index: int) -> int:
        """The same as `num_tokens`."""
        return self.num_tokens(index)

    def ordered_indices(self) -> NDArray[np.int64]:
        """All blocks in the order of the files; the order of training is that of `batches`."""
        return np.arange(len(self))


def _as_tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """The same with tensors in the place of arrays, at any depth."""
    return {
        key: _as_tensors(value)
        if isinstance(value, dict)
        else torch.from_numpy(value)
        if isinstance(value, np.ndarray)
        else value
        for key, value in batch.items()
    }
