"""The base class of our fairseq datasets: whole batches, addressed by their blocks.

Stage of the flow in `roberta_plugin/data/__init__.py`. A block (a piece of text, or an example of fine-tuning) is
addressed by (pass, index). The pass is the number of times the block has been visited; it travels with the batch,
because fairseq's data-loader workers outlive epochs and are not notified of a new one.

Shapes: B blocks in a batch, N blocks in the dataset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
import numpy as np
import torch
from fairseq.data import FairseqDataset
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from roberta_plugin.data.array_files import keeping_pages
from roberta_plugin.data.block_batches import BlockBatch, BlockBatches, UpdateStarts
from roberta_plugin.data.block_order import Addresses, Order, check_token_limit, cut_in_parts
from roberta_plugin.data.rounding import ceil_div, round_up

_BLOCKS_IN_WINDOW = 2**17  # lengths in memory at a time


class BlockDataset(FairseqDataset, ABC):  # type: ignore[misc]
    """A dataset that makes whole batches.

    A batch has at least "id" and "pass" (B,); its arrays become tensors.
    """

    epoch = 1
    pack = False
    """True if the blocks of a batch lie end to end in one row instead of being padded."""
    pad_to_multiple = 1
    """The width of a batch is a multiple of this."""
    max_length = 0
    """The most tokens of a block; 0 if that is not known."""
    counts_updates = False
    """True if batches depend on the number of updates; `make_batch` then takes `updates`."""
    update_sequences: int | None = None
    """Blocks of an update on all ranks, if this number is fixed for any number of ranks."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def order(self, epoch: int) -> Order:
        """The blocks of `epoch` (1-based) in visiting order; a pure function of (seed, epoch)."""

    def batches(
        self,
        epoch: int,
        *,
        first_block: int = 0,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        required_batch_size_multiple: int = 1,
        batches_per_update: int | None = None,
    ) -> BlockBatches:
        """The batches of `epoch` (1-based), from block `first_block` on; a pure function of (seed, epoch).

        A batch has at most `max_sentences` blocks and at most `max_tokens` tokens. If blocks differ in length and
        `max_tokens` can bind, all lengths must be read to know the number of batches; otherwise none are. With
        `update_sequences`, the `batches_per_update` of all ranks share out the blocks of an update.

        Raises:
            ValueError: if no limit is given, or one block alone exceeds `max_tokens`, or the batches of
                `update_sequences` exceed a limit.
        """
        if max_tokens is None and max_sentences is None:
            raise ValueError("The batch size is missing: give --batch-size, --max-tokens or both.")
        order = self.order(epoch)
        width = round_up(self.longest, self.pad_to_multiple)
        multiple = 1 if self.pack else required_batch_size_multiple
        are_equal = self.are_equal_in_length and width > 0
        if max_tokens is not None:
            check_token_limit(width, max_tokens=max_tokens, longest=self.longest, multiple=self.pad_to_multiple)
            if are_equal:  # they fit a fixed number of times, so no length has to be read
                fitting = self._fitting(max_tokens)
                fitting -= fitting % multiple if fitting > multiple else 0
                max_sentences = min(fitting, max_sentences or fitting)
        if self.update_sequences is not None and batches_per_update is not None:
            self._check_share(batches_per_update, max_sentences, max_tokens and self._fitting(max_tokens))
            starts = UpdateStarts(first_block, len(order), blocks=self.update_sequences, batches=batches_per_update)
            return BlockBatches(order, starts, len(order))
        if max_tokens is None or are_equal or (max_sentences is not None and width * max_sentences <= max_tokens):
            assert max_sentences is not None
            return BlockBatches(order, range(first_block, len(order), max_sentences), len(order))
        lengths = (
            self.lengths_of(order.addresses(start, min(start + _BLOCKS_IN_WINDOW, len(order))))
            for start in range(first_block, len(order), _BLOCKS_IN_WINDOW)
        )
        with keeping_pages():
            bounds = first_block + cut_in_parts(
                lengths,
                max_tokens=max_tokens,
                max_sentences=max_sentences,
                required_batch_size_multiple=multiple,
                padded=not self.pack,
                multiple=self.pad_to_multiple,
            )
        return BlockBatches(order, bounds[:-1], len(order))

    def limit_width(self, *, max_tokens: int | None, max_sentences: int | None) -> None:
        """Limit `pad_to_multiple` to the width of a full batch: a packed row, or the longest block.

        Then `pad_to_multiple` may be chosen for a large batch, and a smaller one has rows of one length, too.
        """
        longest = self.max_length or self.longest
        rows = (max_tokens, max_sentences and max_sentences * longest)
        widest = min(filter(None, rows), default=longest) if self.pack else longest
        self.pad_to_multiple = max(1, min(self.pad_to_multiple, widest))

    def _fitting(self, max_tokens: int) -> int:
        """Number of blocks, as long as the longest, that a batch of `max_tokens` holds."""
        if self.pack:  # the row is rounded up as a whole
            return (max_tokens - max_tokens % self.pad_to_multiple) // max(1, self.longest)
        width: int = round_up(self.longest, self.pad_to_multiple)
        return max_tokens // max(1, width)

    def _check_share(self, batches_per_update: int, *limits: int | None) -> None:
        """Refuse batches of an update with more blocks than a limit allows."""
        assert self.update_sequences is not None
        largest = ceil_div(self.update_sequences, batches_per_update)
        if any(limit is not None and largest > limit for limit in limits):
            raise ValueError(
                f"--update-sequences {self.update_sequences} makes batches of {largest} blocks with "
                f"{batches_per_update} batches an update (ranks x --update-freq), more than --batch-size or "
                "--max-tokens allow: raise --update-freq."
            )

    @abstractmethod
    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Tokens of the blocks `indices` (n,)."""

    def lengths_of(self, addresses: Addresses) -> NDArray[np.int32]:
        """Tokens of the blocks at some addresses (n,), where the length depends on the pass."""
        return self.lengths(addresses.indices)

    are_equal_in_length = False
    """True if all blocks, except one per file, have as many tokens as the longest."""

    @property
    def longest(self) -> int:
        """Tokens of the longest block; 0 if there are no blocks."""
        return int(self.lengths(np.arange(len(self))).max(initial=0))

    @abstractmethod
    def make_batch(self, passes: NDArray[np.int64], indices: NDArray[np.int64]) -> dict[str, Any]:
        """The batch of the blocks `indices` (B,) in their passes (B,), in arrays."""

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch for blocks that are requested by plain index."""
        self.epoch = epoch

    def visit(self, epoch: int) -> int:
        """The number of epochs this dataset has served when `epoch` ends."""
        return epoch

    def __getitems__(self, batch: BlockBatch | Sequence[tuple[int, int]]) -> Any:
        """A whole batch at once; torch's data loader calls this if a dataset has it.

        In a data-loader worker: a parcel that becomes the batch on its way to the training process.
        """
        if not len(batch):
            return {}
        updates: dict[str, int] = {}
        if isinstance(batch, BlockBatch):
            passes, indices = batch.passes, batch.indices
            if batch.updates is not None:
                updates["updates"] = batch.updates
        else:
            passes, indices = np.array(list(batch), dtype=np.int64).T
        arrays = self.make_batch(passes, indices, **updates)
        return _as_tensors(arrays) if get_worker_info() is None else _BatchOfWorker(arrays)

    def __getitem__(self, address: tuple[int, int] | int) -> dict[str, Any]:
        """The batch of one block, addressed by (pass, index), or by its index in the epoch of `set_epoch`."""
        number, index = address if isinstance(address, tuple) else (self.visit(self.epoch), int(address))
        batch: dict[str, Any] = self.__getitems__([(number, index)])
        return batch

    def collater(self, samples: Any) -> Any:
        """Return a complete batch unchanged; join single blocks, which fairseq collects for its dummy batch."""
        if not isinstance(samples, list):
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
        """Equal to `num_tokens`."""
        return self.num_tokens(index)

    def ordered_indices(self) -> NDArray[np.int64]:
        """All blocks in file order; `batches` gives the training order."""
        return np.arange(len(self))


class _BatchOfWorker:
    """The arrays of a batch in a data-loader worker; unpickled by the training process, they are its tensors.

    torch would send each tensor through a file in shared memory, a dozen a batch, which costs the training process
    several times as much as making the batch itself. Plain bytes of half the width are cheap.
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return _as_tensors, (_narrow(self._arrays),)


class _Narrowed(NamedTuple):
    """An int64 array whose numbers fit into int32."""

    values: NDArray[np.int32]


def _narrow(batch: dict[str, Any]) -> dict[str, Any]:
    """Replace int64 arrays by `_Narrowed` at any depth, where that is possible."""
    narrowed: dict[str, Any] = {}
    for key, value in batch.items():
        narrowed[key] = value
        if isinstance(value, dict):
            narrowed[key] = _narrow(value)
        elif isinstance(value, np.ndarray) and value.dtype == np.int64 and _fits_int32(value):
            narrowed[key] = _Narrowed(value.astype(np.int32))
    return narrowed


def _fits_int32(values: NDArray[np.int64]) -> bool:
    limits = np.iinfo(np.int32)
    return values.size > 0 and limits.min <= int(values.min()) and int(values.max()) <= limits.max


def _as_tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """Replace arrays by tensors, at any depth."""
    tensors: dict[str, Any] = {}
    for key, value in batch.items():
        if isinstance(value, dict):
            value = _as_tensors(value)
        elif isinstance(value, _Narrowed):
            value = torch.from_numpy(value.values.astype(np.int64))
        elif isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
        tensors[key] = value
    return tensors
